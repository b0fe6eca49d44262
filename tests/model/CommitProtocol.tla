--------------------------- MODULE CommitProtocol ---------------------------
(***************************************************************************)
(* The commit protocol of ducklake-orch: writers plan a change, write its   *)
(* files, and commit it as one snapshot; one transaction of another engine  *)
(* commits by the rules of the DuckLake extension. Processes crash, answers *)
(* to COMMIT are lost. README.md maps each action to the code.              *)
(*                                                                          *)
(* Every commit also changes `truth`, which holds the rows that each        *)
(* snapshot must have: those of its predecessor, changed as the operation   *)
(* is defined. The invariants compare the catalog with it.                  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Writers,        \* processes that use ducklake-orch
    Nobody,         \* no writer; also the author of the rows that exist at the start
    Tables,         \* {"a", "b"}
    Mix,            \* the operations that writers choose from
    EngineMix,      \* the changes that the other engine chooses one from
    OpsPerWriter,   \* how many operations each writer runs
    Crashes,        \* how many processes are killed, at most
    LostAnswers,    \* how many answers to COMMIT are lost, at most
    Mutation        \* "none", or the name of the one fault that is built in

VARIABLES
    cat,            \* the catalog database
    storage,        \* the data files and delete files that exist
    sched,          \* files scheduled for deletion, each with the attempts that ran at that time
    lock,           \* the writer that holds the commit lock
    writer,         \* the state of each writer
    engine,         \* the state of the other engine
    flights,        \* commits whose client is dead or waits in vain, and that the server may still apply
    truth,          \* the rows that each snapshot must have
    done,           \* what was committed: id of the operation, its snapshot, what it had read
    acked,          \* ids of the operations that were reported as successful
    faults          \* how many crashes and lost answers there were

vars == <<cat, storage, sched, lock, writer, engine, flights, truth, done, acked, faults>>

Faulty(name) == Mutation = name
Never == 99
Min(S) == CHOOSE n \in S : \A m \in S : n <= m
Max(S) == CHOOSE n \in S : \A m \in S : n >= m

(***************************************************************************)
(* Operations. A row is [id, k]: the operation that wrote it, and its key.  *)
(* Key 3 is in the partition "q", all others are in "p".                    *)
(***************************************************************************)
PartitionOf(k) == IF k = 3 THEN "q" ELSE "p"

\* How an operation is repeated after a crash: "once" (with an idempotency key: a commit with the key ends it), "shared"
\* (once, and several writers do the same work), "again" (a repetition has the same effect), "none" (never).
KeyOf(do) == IF do \in {"append", "inline"} THEN "once" ELSE "again"
On(do, t, ks) == [do |-> do, t |-> t, ks |-> ks]
Op(kind, key, parts, reads) == [kind |-> kind, key |-> key, parts |-> parts, reads |-> reads]
One(do, t, ks) == Op("change", KeyOf(do), {On(do, t, ks)}, {})
With(key, op) == [op EXCEPT !.key = key]
Transaction(parts, reads) == Op("change", "once", parts, reads)
Task(kind) == Op(kind, IF kind = "publish" THEN "once" ELSE "none", {}, {})

Appends == {One("append", "a", {1}), One("inline", "a", {3}), One("append", "b", {2})}
RowChanges == {One("merge", "a", {2}), One("merge", "a", {3}), One("delete", "a", {1}), One("delete", "a", {3})}
Replaces == {One("replace", "a", {1}), One("replace", "a", {3})}
Moves == {One("compact", "a", {1}), One("rewrite", "a", {1}), One("flush", "a", {})}
Rollbacks == {One("rollback", "a", {})}
Upkeep == {Task("expire"), Task("cleanup"), Task("orphans")}

\* The mixes of the configurations in check.py.
AllChanges == Appends \cup RowChanges \cup Replaces \cup Moves \cup Rollbacks
KeyedMix == RowChanges \cup Replaces \cup Moves
UpkeepMix == {One("merge", "a", {2}), One("replace", "a", {3}), One("compact", "a", {1})} \cup Rollbacks \cup Upkeep
RetryMix == {One("append", "a", {1}), With("none", One("append", "a", {2})), One("merge", "a", {1}),
             One("flush", "a", {})}
ExpiredKeysMix == {One("append", "b", {1}), Task("expire")}
TwinMix == {With("shared", One("append", "a", {1})), One("replace", "a", {1})}
TransactionMix == {Transaction({On("append", "a", {1}), On("merge", "b", {1})}, {}),
                   Transaction({On("append", "a", {1})}, {"b"}),
                   Transaction({On("inline", "b", {3})}, {"a"}),
                   One("compact", "a", {1}), One("flush", "a", {}), One("delete", "b", {1})}
StageMix == {Op("stage", "once", {On("replace", "a", {1}), On("append", "b", {2})}, {}),
             Op("stage", "once", {On("append", "b", {2})}, {}), Task("publish"),
             One("append", "a", {2}), One("compact", "a", {1})}
BesideEngine == AllChanges \ {One("append", "b", {2})}
FewBesideEngine == {One("delete", "a", {1}), One("merge", "a", {3}), One("compact", "a", {1}), One("flush", "a", {})}
NoEngine == {}
EngineChanges == {On("xappend", "a", {1}), On("xinline", "a", {3}), On("xdelete", "a", {1}), On("xsmall", "a", {1}),
                  On("xsmall", "a", {3}), On("xflush", "a", {}), On("xmerge", "a", {1})}

(***************************************************************************)
(* The catalog. A row version is [r, b]: the row, and the snapshot in which *)
(* it began. A deletion is [r, b, s]: the version that ended at snapshot s. *)
(***************************************************************************)
Old(k) == [id |-> <<Nobody, k>>, k |-> k]
OldFile(n, t, ks) ==
    [id |-> <<Nobody, n, 0, t, "p">>, t |-> t, part |-> "p", rows |-> {[r |-> Old(k), b |-> 1] : k \in ks},
     begin |-> 1, end |-> Never]
\* Snapshot 1 loads both tables, 2 inlines a row, 3 deletes a row of a file by an inlined deletion.
FirstCatalog ==
    [latest |-> 3, snaps |-> 1..3,
     tokens |-> [s \in 1..3 |-> CASE s = 1 -> {<<"inserted", "a">>, <<"inserted", "b">>}
                                  [] s = 2 -> {<<"inlined_insert", "a">>}
                                  [] s = 3 -> {<<"inlined_delete", "a">>}],
     marks |-> [s \in 1..3 |-> <<Nobody, s, 0>>],
     files |-> {OldFile(1, "a", {1, 2, 4}), OldFile(2, "b", {1})},
     deletes |-> {},
     inlinedDeletes |-> {[file |-> <<Nobody, 1, 0, "a", "p">>, r |-> Old(4), b |-> 1, s |-> 3]},
     inlined |-> {[t |-> "a", r |-> Old(3), b |-> 2, e |-> Never]},
     keys |-> {},
     stats |-> [t \in Tables |-> IF t = "a" THEN 1..4 ELSE {1}],
     stage |-> [state |-> "none", id |-> <<Nobody, 0>>, at |-> 0, changes |-> {}]]
FirstTruth ==
    [s \in 0..3 |-> [t \in Tables |->
        CASE s = 0 -> {}
          [] t = "b" -> {Old(1)}
          [] s = 1 -> {Old(1), Old(2), Old(4)}
          [] s = 2 -> {Old(1), Old(2), Old(3), Old(4)}
          [] OTHER -> {Old(1), Old(2), Old(3)}]]

Known(c) == {f.id : f \in c.files} \cup {d.id : d \in c.deletes}
FilesAt(c, t, s) == {f \in c.files : f.t = t /\ f.begin <= s /\ s < f.end}
LiveFiles(c, t) == {f \in c.files : f.t = t /\ f.end = Never}
DeletesOf(c, file) == {d \in c.deletes : d.file = file}
InFile(c, file) == UNION {d.gone : d \in DeletesOf(c, file)}
InCatalog(c, file) == {[r |-> d.r, b |-> d.b, s |-> d.s] : d \in {d \in c.inlinedDeletes : d.file = file}}
Deletions(c, file) == InFile(c, file) \cup InCatalog(c, file)
EndOf(c, file, v) == Min({Never} \cup {d.s : d \in {d \in Deletions(c, file) : d.r = v.r /\ d.b = v.b}})
VersionsAt(c, f, s) == {v \in f.rows : v.b <= s /\ s < EndOf(c, f.id, v)}
InlinedAt(c, t, s) == {v \in c.inlined : v.t = t /\ v.b <= s /\ s < v.e}
\* What a reader of a snapshot gets: rows with the place that each comes from.
Read(c, t, s) ==
    UNION {{<<f.id, v.b, v.r>> : v \in VersionsAt(c, f, s)} : f \in FilesAt(c, t, s)}
    \cup {<<<<Nobody>>, v.b, v.r>> : v \in InlinedAt(c, t, s)}
RowsAt(c, t, s) == {found[3] : found \in Read(c, t, s)}
\* The deletions of a live file that a plan compares with: `FileState` of conflicts.py.
StateOf(c, file) ==
    [file |-> file, deletes |-> {d.id : d \in {d \in DeletesOf(c, file) : d.end = Never}},
     inlined |-> Cardinality(InCatalog(c, file))]

(***************************************************************************)
(* Plans: what a writer finds at the latest snapshot, and the files that it *)
(* writes. Rows whose snapshot only the commit knows begin at 0.            *)
(***************************************************************************)
FileId(who, t, part) == <<who[1], who[2], who[3], t, part>>
DeleteId(who, file) == <<who, file>>
NewRows(id, ks) == {[r |-> [id |-> id, k |-> k], b |-> 0] : k \in ks}
ByPartition(who, t, versions) ==
    {[id |-> FileId(who, t, part), part |-> part, rows |-> {v \in versions : PartitionOf(v.r.k) = part}] :
        part \in {PartitionOf(v.r.k) : v \in versions}}

Blank(c, p) ==
    [do |-> p.do, t |-> p.t, ks |-> p.ks, at |-> c.latest,
     files |-> {},      \* new data files
     inlines |-> {},    \* rows to inline
     seen |-> {}, inlinedSeen |-> {},   \* what a row change depends on
     states |-> {},     \* files that must be unchanged
     whole |-> {},      \* files to retire
     ends |-> {},       \* inlined rows to retire
     cut |-> {},        \* files that get a delete file: [file, old, gone]
     forget |-> {},     \* files that a merged file replaces in history
     moved |-> {},      \* inlined rows to move into files
     placed |-> {},     \* delete files of moved rows
     absorbs |-> {},    \* delete files that the other engine replaces
     small |-> {},      \* inlined deletions that the other engine adds
     target |-> 0]      \* the snapshot to roll back to

\* Rows that a delete, an update or a merge changes: search/row_plan.py, search/row_search.py.
RowPlan(c, p) ==
    LET s == c.latest
        matching(vs) == {v \in vs : v.r.k \in p.ks}
        seen == {f \in FilesAt(c, p.t, s) : matching(f.rows) # {}}
        files == {f \in seen : matching(VersionsAt(c, f, s)) # {}}
        whole == {f \in files : VersionsAt(c, f, s) = matching(VersionsAt(c, f, s))}
        inlined == {[r |-> v.r, b |-> v.b] : v \in matching(InlinedAt(c, p.t, s))}
    IN [Blank(c, p) EXCEPT
        !.seen = {f.id : f \in seen}, !.inlinedSeen = inlined, !.ends = inlined,
        !.states = {StateOf(c, f.id) : f \in files},
        !.whole = {f.id : f \in whole},
        !.cut = {[file |-> f.id, old |-> Deletions(c, f.id), gone |-> matching(VersionsAt(c, f, s))] :
                    f \in files \ whole}]

\* verbs/rollback_plan.py: files with the same rows stay, rows of the others are copied.
RollbackPlan(c, who, p, to) ==
    LET s == c.latest
        current == FilesAt(c, p.t, s)
        past == FilesAt(c, p.t, to)
        kept == {f \in current \cap past : VersionsAt(c, f, to) = VersionsAt(c, f, s)}
        back == UNION {VersionsAt(c, f, to) : f \in past \ kept} \cup {v \in InlinedAt(c, p.t, to) : v.e <= s}
        rows == {[r |-> v.r, b |-> 0] : v \in back}
    IN [Blank(c, p) EXCEPT
        !.files = ByPartition(who, p.t, rows), !.target = to,
        !.states = {StateOf(c, f.id) : f \in current},
        !.whole = {f.id : f \in current \ kept},
        !.ends = {[r |-> v.r, b |-> v.b] : v \in {v \in InlinedAt(c, p.t, s) : v.b > to}}]

\* lifecycle/compaction_bin.py: every version that a retained snapshot sees moves to one file.
MergePlan(c, who, p) ==
    LET inputs == {f \in LiveFiles(c, p.t) : f.part \in {PartitionOf(k) : k \in p.ks}}
        seen(f) == {v \in f.rows : EndOf(c, f.id, v) > Min(c.snaps)}
        rows == UNION {seen(f) : f \in inputs}
        dead == UNION {{[r |-> v.r, b |-> v.b, s |-> EndOf(c, f.id, v)] :
                          v \in {v \in seen(f) : EndOf(c, f.id, v) < Never}} : f \in inputs}
        new == ByPartition(who, p.t, rows)
    IN [Blank(c, p) EXCEPT
        !.files = new, !.states = {StateOf(c, f.id) : f \in inputs}, !.forget = {f.id : f \in inputs},
        !.placed = {[id |-> DeleteId(who, f.id), file |-> f.id, gone |-> dead] : f \in {f \in new : dead # {}}}]

RewritePlan(c, who, p) ==
    LET inputs == {f \in LiveFiles(c, p.t) : f.part \in {PartitionOf(k) : k \in p.ks}}
        rows == UNION {VersionsAt(c, f, c.latest) : f \in inputs}
    IN [Blank(c, p) EXCEPT
        !.files = ByPartition(who, p.t, {[r |-> v.r, b |-> 0] : v \in rows}),
        !.states = {StateOf(c, f.id) : f \in inputs}, !.whole = {f.id : f \in inputs}]

\* lifecycle/flush.py: inlined rows and deletions move into files, with the snapshots in which they began and ended.
FlushPlan(c, who, p, live) ==
    LET moved == {v \in c.inlined : v.t = p.t}
        seen == {v \in moved : v.e > Min(c.snaps)}
        new == ByPartition(who, p.t, {[r |-> v.r, b |-> v.b] : v \in seen})
        dead(f) == {[r |-> v.r, b |-> v.b, s |-> v.e] : v \in {v \in seen : v.e < Never /\ PartitionOf(v.r.k) = f.part}}
        lives == {f \in live : InCatalog(c, f.id) # {}}
    IN [Blank(c, p) EXCEPT
        !.files = new, !.moved = moved, !.states = {StateOf(c, f.id) : f \in lives},
        !.cut = {[file |-> f.id, old |-> Deletions(c, f.id), gone |-> {}] : f \in lives},
        !.placed = {[id |-> DeleteId(who, f.id), file |-> f.id, gone |-> dead(f)] : f \in {f \in new : dead(f) # {}}}]

\* What the extension does in the same cases: a delete file replaces the one that its transaction has seen, and leaves
\* inlined deletions alone; a small delete is inlined; a flush also moves the deletions of retired files.
EnginePlan(c, who, p) ==
    LET rows == RowPlan(c, p)
        gone(cut) == {[r |-> v.r, b |-> v.b, s |-> 0] : v \in cut.gone}
        flush == FlushPlan(c, who, p, {f \in c.files : f.t = p.t})
    IN CASE p.do = "xappend" -> [Blank(c, p) EXCEPT !.files = ByPartition(who, p.t, NewRows(<<Nobody, 0>>, p.ks))]
         [] p.do = "xinline" -> [Blank(c, p) EXCEPT !.inlines = {v.r : v \in NewRows(<<Nobody, 0>>, p.ks)}]
         [] p.do = "xdelete" ->
              [rows EXCEPT !.cut = {}, !.absorbs = UNION {StateOf(c, x.file).deletes : x \in rows.cut},
               !.placed = {[id |-> DeleteId(who, x.file), file |-> x.file, gone |-> InFile(c, x.file) \cup gone(x)] :
                              x \in rows.cut}]
         [] p.do = "xsmall" ->
              [rows EXCEPT !.cut = {}, !.whole = {},
               !.small = UNION {{[file |-> f.id, r |-> v.r, b |-> v.b, s |-> 0] :
                                    v \in {v \in VersionsAt(c, f, c.latest) : v.r.k \in p.ks}} :
                                f \in FilesAt(c, p.t, c.latest)}]
         [] p.do = "xflush" ->
              [flush EXCEPT !.cut = {}, !.absorbs = UNION {StateOf(c, x.file).deletes : x \in flush.cut},
               !.placed = @ \cup {[id |-> DeleteId(who, x.file), file |-> x.file, gone |-> Deletions(c, x.file)] :
                                     x \in flush.cut}]
         [] p.do = "xmerge" -> MergePlan(c, who, p)

Plans(c, who, id, p) ==
    CASE p.do = "append" -> {[Blank(c, p) EXCEPT !.files = ByPartition(who, p.t, NewRows(id, p.ks))]}
      [] p.do = "inline" -> {[Blank(c, p) EXCEPT !.inlines = {v.r : v \in NewRows(id, p.ks)}]}
      [] p.do = "replace" -> {[Blank(c, p) EXCEPT !.files = ByPartition(who, p.t, NewRows(id, p.ks))]}
      [] p.do = "delete" -> {RowPlan(c, p)}
      [] p.do = "merge" -> {[RowPlan(c, p) EXCEPT !.files = ByPartition(who, p.t, NewRows(id, p.ks))]}
      [] p.do = "rollback" -> {RollbackPlan(c, who, p, to) : to \in c.snaps \ {c.latest}}
      [] p.do = "compact" -> {MergePlan(c, who, p)}
      [] p.do = "rewrite" -> {RewritePlan(c, who, p)}
      [] p.do = "flush" -> {FlushPlan(c, who, p, LiveFiles(c, p.t))}

\* A plan that would change nothing ends the operation without a commit.
Nothing(c, ch) ==
    CASE ch.do = "delete" -> ch.states = {} /\ ch.ends = {}
      [] ch.do \in {"compact", "rewrite"} -> ch.states = {}
      [] ch.do = "flush" -> ch.moved = {} /\ ch.cut = {}
      [] ch.do = "rollback" -> RowsAt(c, ch.t, ch.target) = RowsAt(c, ch.t, c.latest)
      [] OTHER -> FALSE

(***************************************************************************)
(* Conflicts: conflicts.py, late_rows.py, expect_snapshot.py,               *)
(* serializable_reads.py, compaction_commit.py, flush_commit.py.            *)
(***************************************************************************)
Since(c, at) == UNION {c.tokens[s] : s \in {s \in c.snaps : s > at}}
HistoryIsWhole(c, at) == {s \in 1..c.latest : s > at} \subseteq c.snaps
DataChanges == {"inserted", "deleted", "inlined_insert", "inlined_delete"}
MovingChanges == {"merge_adjacent", "rewrite_delete", "inline_flush"}

FilesUnchanged(c, ch) ==
    \A state \in ch.states : (\E f \in LiveFiles(c, ch.t) : f.id = state.file) /\ StateOf(c, state.file) = state
NoLateRows(c, ch) ==
    /\ \A f \in LiveFiles(c, ch.t) : f.id \in ch.seen \/ \A v \in f.rows : v.r.k \notin ch.ks
    /\ ch.inlinedSeen = {[r |-> v.r, b |-> v.b] : v \in {v \in InlinedAt(c, ch.t, c.latest) : v.r.k \in ch.ks}}
InlinedUnchanged(c, ch) ==
    LET now == {v \in c.inlined : v.t = ch.t /\ v.b <= ch.at}
        ended(vs) == Cardinality({v \in vs : v.e < Never})
    IN Cardinality(now) = Cardinality(ch.moved) /\ ended(now) = ended(ch.moved)
TableUnchanged(c, ch) == HistoryIsWhole(c, ch.at) /\ \A token \in Since(c, ch.at) : token[2] # ch.t

Fits(c, ch) ==
    CASE ch.do \in {"delete", "merge"} ->
           /\ FilesUnchanged(c, ch) \/ Faulty("no file check")
           /\ NoLateRows(c, ch) \/ Faulty("no search for late rows")
      [] ch.do = "rollback" -> TableUnchanged(c, ch) \/ Faulty("rollback checks nothing")
      [] ch.do \in {"compact", "rewrite"} -> FilesUnchanged(c, ch) \/ Faulty("compaction checks nothing")
      [] ch.do = "flush" -> (InlinedUnchanged(c, ch) /\ FilesUnchanged(c, ch)) \/ Faulty("flush checks nothing")
      [] OTHER -> TRUE

\* What a serializable transaction has read, and what a stage replaces, must be as it was.
ReadsHold(c, at, reads) ==
    \/ reads = {} \/ Faulty("reads are not checked")
    \/ HistoryIsWhole(c, at) /\ \A token \in Since(c, at) : token[2] \in reads => token[1] \in MovingChanges
PartitionsOf(ch) == {PartitionOf(k) : k \in ch.ks}
InScope(rows, ch) == {r \in rows : PartitionOf(r.k) \in PartitionsOf(ch)}
StageHolds(c, ch) ==
    \/ ch.do # "replace" \/ Faulty("a stage replaces what it has not seen")
    \/ HistoryIsWhole(c, ch.at)
       /\ \/ \A token \in Since(c, ch.at) : token[2] = ch.t => token[1] \in MovingChanges
          \/ InScope(RowsAt(c, ch.t, ch.at), ch) = InScope(RowsAt(c, ch.t, c.latest), ch)

(***************************************************************************)
(* The effect of a commit: retire.py, table_commit.py, delete_file_rows.py. *)
(***************************************************************************)
\* A replacement finds what it retires inside its commit; all others retire what they planned.
Retired(c, ch) ==
    IF ch.do = "replace"
    THEN [files |-> {f.id : f \in {f \in LiveFiles(c, ch.t) : f.part \in PartitionsOf(ch)}},
          inlined |-> {[r |-> v.r, b |-> v.b] :
                         v \in {v \in InlinedAt(c, ch.t, c.latest) : PartitionOf(v.r.k) \in PartitionsOf(ch)}}]
    ELSE [files |-> ch.whole, inlined |-> ch.ends]

RetiredBy(c, changes) == [t \in {ch.t : ch \in changes} |-> Retired(c, CHOOSE ch \in changes : ch.t = t)]

Tokens(ch, retired) ==
    LET kinds ==
          CASE ch.do \in {"append", "xappend"} -> {"inserted"}
            [] ch.do \in {"inline", "xinline"} -> {"inlined_insert"}
            [] ch.do \in {"replace", "delete", "merge", "rollback"} ->
                 {"inserted", "deleted"}
                 \cup (IF (retired.inlined # {} \/ ch.cut # {}) /\ ~Faulty("no token for inlined deletes")
                       THEN {"inlined_delete"} ELSE {})
            [] ch.do = "compact" -> {"merge_adjacent"} \cup (IF Faulty("no flush token") THEN {} ELSE {"inline_flush"})
            [] ch.do = "rewrite" -> {"rewrite_delete"} \cup (IF Faulty("no flush token") THEN {} ELSE {"inline_flush"})
            [] ch.do = "flush" -> (IF Faulty("no flush token") THEN {} ELSE {"inline_flush"})
                                  \cup (IF ch.cut = {} THEN {} ELSE {"merge_adjacent"})
            [] ch.do = "xdelete" -> {"deleted"}
            [] ch.do = "xsmall" -> {"inlined_delete"}
            [] ch.do = "xflush" -> (IF ch.moved = {} THEN {} ELSE {"inline_flush"})
                                   \cup (IF ch.states = {} THEN {} ELSE {"deleted"})
            [] ch.do = "xmerge" -> {"merge_adjacent"}
    IN {<<kind, ch.t>> : kind \in kinds}

Apply(c, who, ch, retired, n) ==
    LET numbered(vs) == {[r |-> v.r, b |-> IF v.b = 0 THEN n ELSE v.b] : v \in vs}
        deleted(ds) == {[r |-> d.r, b |-> d.b, s |-> IF d.s = 0 THEN n ELSE d.s] : d \in ds}
        new(f) == [id |-> f.id, t |-> ch.t, part |-> f.part, rows |-> numbered(f.rows),
                   begin |-> Min({v.b : v \in numbered(f.rows)}), end |-> Never]
        isEngine == ch.do \in {"xappend", "xinline", "xdelete", "xsmall", "xflush", "xmerge"}
        \* A retired file whose deletions are inlined gets a delete file that ends with it.
        retiredDeletes == IF isEngine THEN {} ELSE
            {[id |-> DeleteId(who, file), file |-> file, gone |-> Deletions(c, file), end |-> n] :
                file \in {file \in retired.files : InCatalog(c, file) # {}}}
        cutDeletes ==
            {[id |-> DeleteId(who, x.file), file |-> x.file, end |-> Never,
              gone |-> x.old \cup {[r |-> v.r, b |-> v.b, s |-> n] : v \in x.gone}] : x \in ch.cut}
        placed == {[id |-> d.id, file |-> d.file, gone |-> deleted(d.gone), end |-> Never] : d \in ch.placed}
        absorbed == {d.file : d \in retiredDeletes \cup cutDeletes} \cup ch.forget
        flushed == IF ch.do = "xflush" THEN {state.file : state \in ch.states} ELSE {}
    IN [c EXCEPT
        !.files = {IF f.id \in retired.files /\ f.end = Never THEN [f EXCEPT !.end = n] ELSE f :
                      f \in {f \in c.files : f.id \notin ch.forget}} \cup {new(f) : f \in ch.files},
        !.deletes = {IF d.file \in retired.files /\ d.end = Never THEN [d EXCEPT !.end = n] ELSE d :
                        d \in {d \in c.deletes : d.file \notin absorbed /\ d.id \notin ch.absorbs}}
                    \cup retiredDeletes \cup cutDeletes \cup placed,
        !.inlinedDeletes = {d \in @ : d.file \notin absorbed \cup flushed}
                           \cup {[d EXCEPT !.s = n] : d \in ch.small},
        !.inlined = {IF v.t = ch.t /\ v.e = Never /\ [r |-> v.r, b |-> v.b] \in retired.inlined
                     THEN [v EXCEPT !.e = n] ELSE v :
                        v \in {v \in @ : ~\E m \in ch.moved : m.t = v.t /\ m.r = v.r /\ m.b = v.b}}
                    \cup {[t |-> ch.t, r |-> r, b |-> n, e |-> Never] : r \in ch.inlines},
        !.stats[ch.t] = IF Faulty("statistics are not widened") THEN @
                        ELSE @ \cup {v.r.k : v \in UNION {f.rows : f \in ch.files}} \cup {r.k : r \in ch.inlines}]

RECURSIVE ApplyAll(_, _, _, _, _)
ApplyAll(c, who, changes, retired, n) ==
    IF changes = {} THEN c
    ELSE LET ch == CHOOSE ch \in changes : TRUE
         IN ApplyAll(Apply(c, who, ch, retired[ch.t], n), who, changes \ {ch}, retired, n)

\* The rows that a table must have after a change, whatever the catalog says.
Meaning(rows, ch, past) ==
    LET added == {v.r : v \in UNION {f.rows : f \in ch.files}} \cup ch.inlines
    IN CASE ch.do \in {"append", "inline", "xappend", "xinline"} -> rows \cup added
         [] ch.do = "replace" -> (rows \ InScope(rows, ch)) \cup added
         [] ch.do \in {"delete", "xdelete", "xsmall"} -> {r \in rows : r.k \notin ch.ks}
         [] ch.do = "merge" -> {r \in rows : r.k \notin ch.ks} \cup added
         [] ch.do = "rollback" -> past[ch.target][ch.t]
         [] OTHER -> rows

Extended(f, n, value) == [s \in (DOMAIN f) \cup {n} |-> IF s = n THEN value ELSE f[s]]

\* One transaction: the snapshot, the changes of all tables, the idempotency keys, the mark of the write.
Snapshot(c, who, id, key, changes, retired) ==
    LET n == c.latest + 1
        written == IF Faulty("only one table is committed") THEN {CHOOSE ch \in changes : TRUE} ELSE changes
    IN [ApplyAll(c, who, written, retired, n) EXCEPT
        !.latest = n, !.snaps = @ \cup {n}, !.marks = Extended(@, n, who),
        !.tokens = Extended(@, n, UNION {Tokens(ch, retired[ch.t]) : ch \in changes}),
        !.keys = IF key \in {"once", "shared"} /\ ~Faulty("keys are not recorded")
                 THEN @ \cup {[id |-> id, n |-> n]} ELSE @,
        !.stage = IF @.id = id /\ @.state = "open" /\ ~Faulty("publication is not recorded")
                  THEN [@ EXCEPT !.state = "published"] ELSE @]
\* Files of the catalog that a transaction removes from it are scheduled for deletion.
Attempt(x) == <<x, writer[x].n, writer[x].a>>
IsRunning(x) == writer[x].pc \notin {"idle", "retry"}
Running == {Attempt(x) : x \in {x \in Writers : IsRunning(x)}} \cup {flight.who : flight \in flights}
Schedule(before, after) == sched \cup {[file |-> f, since |-> Running] : f \in Known(before) \ Known(after)}

Commit(c, who, id, key, changes, retired, saw) ==
    LET after == Snapshot(c, who, id, key, changes, retired)
        n == after.latest
        rows(t) == IF \E ch \in changes : ch.t = t
                   THEN Meaning(truth[c.latest][t], CHOOSE ch \in changes : ch.t = t, truth) ELSE truth[c.latest][t]
    IN /\ cat' = after
       /\ storage' = storage \cup {d.id : d \in after.deletes \ c.deletes}
       /\ sched' = Schedule(c, after)
       /\ truth' = Extended(truth, n, [t \in Tables |-> rows(t)])
       /\ done' = done \cup {[id |-> id, n |-> n, saw |-> saw, once |-> key # "again"]}

(***************************************************************************)
(* Writers.                                                                 *)
(***************************************************************************)
NoPlan == [at |-> 0, need |-> 0, changes |-> {}, reads |-> {}, saw |-> {}, files |-> {}]
Idle(n) == [pc |-> "idle", n |-> n, a |-> 0, op |-> Task("none"), id |-> <<Nobody, 0>>, plan |-> NoPlan,
            base |-> 0, doubt |-> FALSE]
Init ==
    /\ cat = FirstCatalog /\ truth = FirstTruth /\ storage = Known(FirstCatalog)
    /\ sched = {} /\ flights = {} /\ done = {} /\ acked = {}
    /\ lock = Nobody
    /\ writer = [x \in Writers |-> Idle(0)]
    /\ engine = [pc |-> "idle", change |-> Blank(FirstCatalog, On("none", "a", {}))]
    /\ faults = [crashes |-> 0, lost |-> 0]

Written(x) == {f.id : f \in UNION {ch.files : ch \in writer[x].plan.changes}}
\* The operation ends: the next one can begin.
End(x) == [writer EXCEPT ![x] = Idle(@.n)]
Acknowledge(x) == acked' = acked \cup {writer[x].id}
\* A new attempt at the operation, with a new write id and new files.
Retry(x) == [writer EXCEPT ![x] = [@ EXCEPT !.pc = "retry", !.doubt = FALSE, !.base = 0, !.plan = NoPlan]]
Release(x) == lock' = IF lock = x THEN Nobody ELSE lock

\* idempotency.py: the table of keys outlives the snapshots.
IsReplayed(op, id) ==
    op.key \in {"once", "shared"} /\ \E key \in cat.keys :
        key.id = id /\ (Faulty("keys expire with snapshots") => key.n \in cat.snaps)

\* Plan an operation on the latest snapshot, and write its data files. A key that is committed already ends it.
Plan(x) ==
    LET w == writer[x] IN
    /\ w.pc \in {"idle", "retry"}
    /\ w.pc = "idle" => w.n < OpsPerWriter
    /\ \E op \in IF w.pc = "idle" THEN Mix ELSE {w.op} :
        LET n == IF w.pc = "idle" THEN w.n + 1 ELSE w.n
            who == <<x, n, IF w.pc = "idle" THEN 0 ELSE w.a + 1>>
            id == IF op.key = "shared" THEN <<Nobody, 9>> ELSE IF op.kind = "publish" THEN cat.stage.id ELSE <<x, n>>
            begin(pc, plan) == writer' = [writer EXCEPT ![x] =
                [Idle(n) EXCEPT !.pc = pc, !.a = who[3], !.op = op, !.id = id, !.plan = plan]]
            saw(reads) == {[t |-> t, rows |-> truth[cat.latest][t], ks |-> {}] : t \in reads}
        IN CASE op.kind # "publish" /\ IsReplayed(op, id) ->
                  /\ acked' = acked \cup {id}
                  /\ writer' = [writer EXCEPT ![x] = Idle(n)]
                  /\ UNCHANGED storage
             [] op.kind \in {"change", "stage"} /\ ~IsReplayed(op, id) ->
                  \E changes \in {{plan[p] : p \in op.parts} :
                        plan \in {plan \in [op.parts -> UNION {Plans(cat, who, id, p) : p \in op.parts}] :
                                    \A p \in op.parts : plan[p] \in Plans(cat, who, id, p)}} :
                    IF \A ch \in changes : Nothing(cat, ch)
                    THEN /\ writer' = [writer EXCEPT ![x] = Idle(n)]
                         /\ UNCHANGED <<storage, acked>>
                    ELSE /\ begin(IF op.kind = "stage" THEN "staging" ELSE "planned",
                                  [NoPlan EXCEPT !.at = cat.latest, !.changes = changes, !.reads = op.reads,
                                   !.need = Min({cat.latest} \cup ({ch.target : ch \in changes} \ {0})),
                                   !.saw = saw(op.reads)])
                         /\ storage' = storage \cup {f.id : f \in UNION {ch.files : ch \in changes}}
                         /\ UNCHANGED acked
             [] op.kind = "publish" ->
                  /\ cat.stage.state # "none"
                  /\ begin("planned", [NoPlan EXCEPT !.at = cat.stage.at, !.need = cat.stage.at,
                                       !.changes = cat.stage.changes,
                                       !.saw = {[t |-> ch.t, ks |-> ch.ks, rows |-> InScope(truth[ch.at][ch.t], ch)] :
                                                  ch \in {ch \in cat.stage.changes : ch.do = "replace"}}])
                  /\ UNCHANGED <<storage, acked>>
             [] op.kind = "expire" ->
                  begin("expiring", [NoPlan EXCEPT !.at = cat.latest, !.need = Never]) /\ UNCHANGED <<storage, acked>>
             [] op.kind = "cleanup" ->
                  LET retired == {f.id : f \in {f \in cat.files : f.end < Never}}
                      wanted == {f \in sched : Faulty("clean-up ignores leases") \/ f.since \cap Running = {}}
                      files == IF Faulty("clean-up deletes retired files") THEN retired
                               ELSE {f.file : f \in wanted} \ Known(cat)
                  IN /\ files # {}
                     /\ begin("cleaning", [NoPlan EXCEPT !.at = cat.latest, !.need = Never, !.files = files])
                     /\ UNCHANGED <<storage, acked>>
             [] op.kind = "orphans" ->
                  /\ begin("listed", [NoPlan EXCEPT !.at = cat.latest, !.need = Never, !.files = storage])
                  /\ UNCHANGED <<storage, acked>>
    /\ UNCHANGED <<cat, sched, lock, engine, flights, truth, done, faults>>

\* Take the lock, begin the transaction on the latest snapshot, and check for conflicts.
Begin(x) ==
    LET w == writer[x]
        changes == w.plan.changes
        lost == w.doubt /\ ~Faulty("no search after a lost answer") /\ \E s \in cat.snaps : cat.marks[s] = Attempt(x)
        replayed == IF w.op.kind = "publish" THEN cat.stage.state = "published"
                    ELSE IsReplayed(w.op, w.id) /\ ~Faulty("keys are looked up before the commit only")
        fits == /\ \A ch \in changes : Fits(cat, ch) /\ (w.op.kind = "publish" => StageHolds(cat, ch))
                /\ ReadsHold(cat, w.plan.at, w.plan.reads)
    IN
    /\ w.pc = "planned" /\ lock = Nobody
    /\ IF lost
       THEN Acknowledge(x) /\ writer' = End(x) /\ UNCHANGED <<storage, lock>>
       ELSE IF replayed
       THEN /\ Acknowledge(x) /\ writer' = End(x)
            /\ storage' = IF w.op.kind = "publish" THEN storage ELSE storage \ Written(x)
            /\ UNCHANGED lock
       ELSE IF fits
       THEN /\ writer' = [writer EXCEPT ![x] = [@ EXCEPT !.pc = "begun", !.base = cat.latest]]
            /\ lock' = x /\ UNCHANGED <<acked, storage>>
       ELSE \* A conflict. A write in doubt reports an unknown outcome, a compaction skips its files, others plan again.
            /\ writer' = IF w.doubt \/ w.op.kind = "publish"
                            \/ \A p \in w.op.parts : p.do \in {"compact", "rewrite"}
                         THEN End(x) ELSE Retry(x)
            /\ storage' = IF w.doubt \/ w.op.kind = "publish" THEN storage ELSE storage \ Written(x)
            /\ UNCHANGED <<acked, lock>>
    /\ UNCHANGED <<cat, sched, engine, flights, truth, done, faults>>

\* COMMIT. The primary key of the snapshot refuses it if another commit has taken the number.
CommitEnds(x) ==
    LET w == writer[x]
        clash == cat.latest # w.base /\ ~Faulty("no primary key")
        commit == Commit(cat, Attempt(x), w.id, w.op.key, w.plan.changes, RetiredBy(cat, w.plan.changes), w.plan.saw)
        doubtful == [writer EXCEPT ![x] = [@ EXCEPT !.pc = "planned", !.doubt = TRUE]]
        unknown == /\ faults' = [faults EXCEPT !.lost = @ + 1]
                   /\ IF Faulty("a lost answer counts as success")
                      THEN Acknowledge(x) /\ writer' = End(x) ELSE UNCHANGED acked /\ writer' = doubtful
        flight == [who |-> Attempt(x), id |-> w.id, key |-> w.op.key, base |-> w.base,
                   changes |-> w.plan.changes, saw |-> w.plan.saw]
        same == UNCHANGED <<cat, storage, sched, truth, done>>
    IN
    /\ w.pc = "begun" /\ lock' = Nobody
    /\ IF clash
       THEN /\ writer' = [writer EXCEPT ![x] = [@ EXCEPT !.pc = "planned"]]
            /\ same /\ UNCHANGED <<flights, acked, faults>>
       ELSE \/ commit /\ Acknowledge(x) /\ writer' = End(x) /\ UNCHANGED <<flights, faults>>
            \/ faults.lost < LostAnswers /\ commit /\ unknown /\ UNCHANGED flights
            \/ faults.lost < LostAnswers /\ same /\ unknown /\ flights' = flights \cup {flight}
    /\ UNCHANGED engine

\* The server applies a COMMIT that its client has given up, or refuses it by the primary key.
Lands(flight) ==
    /\ flight \in flights /\ flights' = flights \ {flight}
    /\ IF cat.latest = flight.base \/ Faulty("a lost commit is renumbered")
       THEN Commit(cat, flight.who, flight.id, flight.key, flight.changes, RetiredBy(cat, flight.changes), flight.saw)
       ELSE UNCHANGED <<cat, storage, sched, truth, done>>
    /\ UNCHANGED <<lock, writer, engine, acked, faults>>

\* A writer in doubt whose attempts are used up reports an unknown outcome. Its files stay.
GiveUp(x) ==
    /\ writer[x].pc = "planned" /\ writer[x].doubt /\ writer' = End(x)
    /\ storage' = IF Faulty("files in doubt are deleted") THEN storage \ Written(x) ELSE storage
    /\ UNCHANGED <<cat, sched, lock, engine, flights, truth, done, acked, faults>>

\* The process dies: the database rolls back, the lock is free. The orchestrator runs the same operation again
\* where that is safe.
Crash(x) ==
    /\ IsRunning(x) /\ faults.crashes < Crashes
    /\ faults' = [faults EXCEPT !.crashes = @ + 1]
    /\ writer' = IF writer[x].op.key = "none" THEN End(x) ELSE Retry(x)
    /\ Release(x)
    /\ UNCHANGED <<cat, storage, sched, engine, flights, truth, done, acked>>

(***************************************************************************)
(* Stages: what was planned is stored in the catalog, and published later.  *)
(***************************************************************************)
Stage(x) ==
    LET w == writer[x] IN
    /\ w.pc = "staging" /\ lock = Nobody
    /\ IF cat.stage.state = "none"
       THEN cat' = [cat EXCEPT !.stage = [state |-> "open", id |-> w.id, at |-> w.plan.at, changes |-> w.plan.changes]]
            /\ UNCHANGED storage
       ELSE storage' = storage \ (Written(x) \ {f.id : f \in UNION {ch.files : ch \in cat.stage.changes}})
            /\ UNCHANGED cat
    /\ writer' = End(x)
    /\ UNCHANGED <<sched, lock, engine, flights, truth, done, acked, faults>>

(***************************************************************************)
(* Upkeep: expiry.py, cleanup.py, orphans.py. Leases of running writes and  *)
(* stages keep the snapshots from the oldest that they need on.             *)
(***************************************************************************)
StageIsOpen == cat.stage.state = "open"
Needed(x) == IF IsRunning(x) THEN Min({writer[x].plan.at, writer[x].plan.need}) ELSE Never
NeededFrom == Min({Needed(x) : x \in {x \in Writers : writer[x].pc \notin {"expiring", "cleaning", "listed", "leased"}}}
                  \cup (IF StageIsOpen THEN {cat.stage.at} ELSE {Never}))
Forget(c, gone) ==
    LET kept == c.snaps \ gone
        unseen(begin, end) == \A s \in kept : ~(begin <= s /\ s < end)
        retired(f) == IF Faulty("expiry ignores retained snapshots") THEN f.end < Never ELSE unseen(f.begin, f.end)
        files == {f.id : f \in {f \in c.files : f.end < Never /\ retired(f)}}
        begin(d) == Min({g.s : g \in d.gone} \cup {d.end})
    IN [c EXCEPT !.snaps = kept,
        !.files = {f \in @ : f.id \notin files},
        !.deletes = {d \in @ : d.file \notin files /\ (d.end = Never \/ ~unseen(begin(d), d.end))},
        !.inlinedDeletes = {d \in @ : d.file \notin files},
        !.inlined = {v \in @ : v.e = Never \/ ~unseen(v.b, v.e)}]
Expire(x) ==
    /\ writer[x].pc = "expiring" /\ lock = Nobody
    /\ LET may == {s \in cat.snaps : s < cat.latest /\ (s < NeededFrom \/ Faulty("expiry ignores leases"))} IN
       \E gone \in {may} \cup {{s} : s \in may} :
          /\ cat' = Forget(cat, gone) /\ sched' = Schedule(cat, cat')
    /\ writer' = End(x)
    /\ UNCHANGED <<storage, lock, engine, flights, truth, done, acked, faults>>

\* Files are deleted first, then removed from the schedule.
CleanUp(x) ==
    /\ writer[x].pc = "cleaning"
    /\ IF writer[x].plan.files \cap storage # {}
       THEN storage' = storage \ writer[x].plan.files /\ UNCHANGED <<sched, writer>>
       ELSE lock = Nobody /\ sched' = {f \in sched : f.file \notin writer[x].plan.files} /\ writer' = End(x)
            /\ UNCHANGED storage
    /\ UNCHANGED <<cat, lock, engine, flights, truth, done, acked, faults>>

\* Files are listed first, then the leases are read, and only then what the catalog knows.
OwnerOf(file) == IF Cardinality(DOMAIN file) = 2 THEN file[1] ELSE <<file[1], file[2], file[3]>>
Staged == IF StageIsOpen THEN {f.id : f \in UNION {ch.files : ch \in cat.stage.changes}} ELSE {}
Unleased(files) == {f \in files : OwnerOf(f) \notin Running /\ f \notin Staged /\ OwnerOf(f)[1] # Nobody}
Unknown(files) == files \ (Known(cat) \cup {f.file : f \in sched})
Orphans(x) ==
    LET w == writer[x]
        first(files) == IF Faulty("paths are read before leases") THEN Unknown(files) ELSE Unleased(files)
        second(files) == IF Faulty("paths are read before leases") THEN Unleased(files) ELSE Unknown(files)
    IN
    /\ \/ /\ w.pc = "listed"
          /\ writer' = [writer EXCEPT ![x] = [@ EXCEPT !.pc = "leased", !.plan.files = first(@)]]
          /\ UNCHANGED storage
       \/ /\ w.pc = "leased" /\ writer' = End(x) /\ storage' = storage \ second(w.plan.files)
    /\ UNCHANGED <<cat, sched, lock, engine, flights, truth, done, acked, faults>>

(***************************************************************************)
(* The other engine: one transaction, pinned to the snapshot that it read.  *)
(* It commits unless the tokens of a later snapshot conflict with it.       *)
(***************************************************************************)
AbortsDelete == {"inserted", "inlined_insert", "merge_adjacent", "rewrite_delete"}
Aborts(ch) ==
    CASE ch.do \in {"xappend", "xinline"} -> {"deleted", "inlined_delete"}
      [] ch.do = "xdelete" -> AbortsDelete
      [] ch.do = "xsmall" -> {"inserted", "inlined_insert", "inlined_delete", "inline_flush"}
      [] ch.do = "xflush" -> {"inlined_delete", "inline_flush"} \cup (IF ch.states = {} THEN {} ELSE AbortsDelete)
      [] ch.do = "xmerge" -> {"deleted", "merge_adjacent", "rewrite_delete"}
EngineId == <<Nobody, 7, 0>>
EngineBegins ==
    /\ engine.pc = "idle"
    /\ \E p \in EngineMix :
        LET ch == EnginePlan(cat, EngineId, p) IN
        /\ engine' = [pc |-> "open", change |-> ch]
        /\ storage' = storage \cup {f.id : f \in ch.files}
    /\ UNCHANGED <<cat, sched, lock, writer, flights, truth, done, acked, faults>>
EngineCommits ==
    LET ch == engine.change
        conflict == \E token \in Since(cat, ch.at) : token[2] = ch.t /\ token[1] \in Aborts(ch)
    IN
    /\ engine.pc = "open" /\ engine' = [engine EXCEPT !.pc = "closed"]
    /\ IF conflict
       THEN storage' = storage \ {f.id : f \in ch.files} /\ UNCHANGED <<cat, sched, truth, done>>
       ELSE Commit(cat, EngineId, <<Nobody, 0>>, "none", {ch}, RetiredBy(cat, {ch}), {})
    /\ UNCHANGED <<lock, writer, flights, acked, faults>>

Next ==
    \/ \E x \in Writers : Plan(x) \/ Begin(x) \/ CommitEnds(x) \/ GiveUp(x) \/ Crash(x) \/ Stage(x)
                          \/ Expire(x) \/ CleanUp(x) \/ Orphans(x)
    \/ \E flight \in flights : Lands(flight)
    \/ EngineBegins \/ EngineCommits
Symmetry == Permutations(Writers)
Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Invariants.                                                              *)
(***************************************************************************)
\* Every operation that was reported as successful is committed.
AcknowledgedIsCommitted == \A id \in acked : \E commit \in done : commit.id = id
\* Every retained snapshot has all rows that it must have.
NothingLost == \A s \in cat.snaps, t \in Tables : truth[s][t] \subseteq RowsAt(cat, t, s)
\* It has no others: none that was deleted before, none that was added after.
NothingResurrected == \A s \in cat.snaps, t \in Tables : RowsAt(cat, t, s) \subseteq truth[s][t]
\* It has each row once, and every operation is committed once.
NothingTwice ==
    /\ \A s \in cat.snaps, t \in Tables :
        LET found == Read(cat, t, s) IN
        /\ Cardinality({f[3] : f \in found}) = Cardinality(found)
        /\ \A f \in FilesAt(cat, t, s) :
             Cardinality({d \in DeletesOf(cat, f.id) : s < d.end /\ \E g \in d.gone : g.s <= s}) <= 1
    /\ \A one, two \in done : one.id = two.id /\ one.once => one.n = two.n
\* The files of every retained snapshot exist, and those that a running write still reads.
Readable == Known(cat) \subseteq storage
PlansAreReadable ==
    \A x \in Writers : writer[x].pc = "planned" =>
        \A ch \in writer[x].plan.changes : {state.file : state \in ch.states} \subseteq storage
\* A table that only merges, deletes and replacements change has each key once.
KeysOnce ==
    \A s \in cat.snaps : LET rows == RowsAt(cat, "a", s) IN Cardinality({r.k : r \in rows}) = Cardinality(rows)
\* What a serializable transaction has read, and what a stage replaces, has not changed before its snapshot.
Serializable ==
    \A commit \in done : \A read \in commit.saw :
        read.rows = IF read.ks = {} THEN truth[commit.n - 1][read.t]
                    ELSE {r \in truth[commit.n - 1][read.t] : PartitionOf(r.k) \in {PartitionOf(k) : k \in read.ks}}
\* The engine answers queries from the statistics alone, so they cover all rows.
StatisticsCover == \A t \in Tables : \A r \in RowsAt(cat, t, cat.latest) : r.k \in cat.stats[t]
=============================================================================
