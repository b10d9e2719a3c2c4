"""The errors that a user sees, of at most three lines: what was expected, where, and how to fix it."""

from collections.abc import Collection


class SfumatoError(Exception):
    """A refusal that a user can act on; the command line prints it without a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, where: object = None, fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(self.message())

    def message(self) -> str:
        """One line each for what, where and how to fix it; control characters in names are made visible."""
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  where: {printable(self.where)}")
        if self.fix:
            lines.append(f"  to mend it: {self.fix}")
        return "\n".join(lines)


class UsageError(SfumatoError):
    """A wrong argument or configuration."""

    exit_code = 2


class NotApplicable(UsageError):
    """A judgement that these images do not allow; a panel leaves it out and says why."""


class DataError(SfumatoError):
    """Input data that cannot be read, or must not be."""

    exit_code = 3


class BudgetExceeded(SfumatoError):
    """A question that the privacy budget cannot pay."""

    exit_code = 4


class EnvironmentProblem(SfumatoError):
    """The machine: disk, memory, entropy, locks."""

    exit_code = 5


class VerificationFailed(SfumatoError):
    """A ledger or release whose claim does not hold."""

    exit_code = 6


class NoGuarantee(VerificationFailed):
    """A release whose files are whole, but which makes no claim that could hold: its level is empirical."""

    exit_code = 7


def expect_within(settings: object, **limits: tuple[float, float]) -> None:
    """Refuse settings one of whose fields is outside its limits (the limits themselves are allowed)."""
    for name, (low, high) in limits.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise UsageError(
                f"Expected {name} from {low:g} to {high:g}, got {value:g}.", fix="give a value in this range"
            )


def expect_one_of(settings: object, **allowed: Collection[str]) -> None:
    """Refuse settings one of whose fields is none of the words that are allowed for it."""
    for name, words in allowed.items():
        value = getattr(settings, name)
        if value not in words:
            raise UsageError(f"Expected {name} as one of {', '.join(words)}; got {value!r}.", fix="choose one of these")


def expect_positive(settings: object, *names: str) -> None:
    """Refuse settings one of whose lists, of those named, is empty or has a number that is not above 0."""
    for name in names:
        values = getattr(settings, name)
        if not values or min(values) <= 0:
            raise UsageError(f"Expected {name} above 0, got {values}.", fix="give numbers above 0")


def printable(name: object) -> str:
    """A file name as it may be shown: newlines, terminal escapes and odd Unicode are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in str(name))
