----------------------------- MODULE Conformance -----------------------------
(***************************************************************************)
(* Accepts runs of the real code: a run is accepted if the model has a      *)
(* behaviour with the same commits in the same order, each by the same      *)
(* operation, with the same tokens, and after each the same rows. TLC       *)
(* prints how many commits of each run it has matched.                      *)
(***************************************************************************)
EXTENDS Observed    \* `Runs`, which conformance.py writes; it extends CommitProtocol

VARIABLES run,      \* the run that this behaviour follows
          matched   \* how many of its commits the model has made

ProgramMix == UNION {UNION {{program[n] : n \in DOMAIN program} : program \in Elements(Runs[r].programs)} :
                       r \in DOMAIN Runs}

\* An operation that changes nothing ends without a trace.
EndsAtOnce(x, n, op) == \A p \in op.parts : \A ch \in Plans(cat, <<x, n, 0>>, <<x, n>>, p) : Nothing(cat, ch)
FollowsProgram(x) ==
    LET n == writer'[x].n
        program == Runs[run].programs[x]
    IN n > writer[x].n =>
         /\ n <= Len(program)
         /\ \/ writer'[x].op = program[n]
            \/ writer'[x].pc = "idle" /\ EndsAtOnce(x, n, program[n])

Matches(commit) ==
    /\ cat'.tokens[cat'.latest] = commit.tokens
    /\ \A t \in Tables : RowsAt(cat', t, cat'.latest) = commit.rows[t]
    /\ commit.id = AnyId \/ \E ended \in done' \ done : ended.id = commit.id

ConformingInit == Init /\ run \in DOMAIN Runs /\ matched = 0
ConformingNext ==
    /\ matched < Len(Runs[run].commits)
    /\ Next
    /\ \A x \in Writers : FollowsProgram(x)
    /\ run' = run
    /\ IF cat'.latest = cat.latest THEN matched' = matched
       ELSE /\ Matches(Runs[run].commits[matched + 1])
            /\ matched' = matched + 1
            /\ PrintT(<<"matched", run, matched'>>)
ConformingSpec == ConformingInit /\ [][ConformingNext]_<<vars, run, matched>>
=============================================================================
