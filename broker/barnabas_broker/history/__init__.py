"""What clients did and saw, as a history, and the rules that every history of an honest cluster keeps. Pure."""

from .checker import Checker, Summary, check
from .events import Event, HistoryError, decode, encode
from .violations import Rule, Violation

__all__ = ["Checker", "Event", "HistoryError", "Rule", "Summary", "Violation", "check", "decode", "encode"]
