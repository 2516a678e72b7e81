"""Histories of what clients did and saw, and the rules that they must keep. Pure."""

from .checker import Checker, Summary, check
from .events import Event, HistoryError, decode, encode
from .violations import Rule, Violation

__all__ = ["Checker", "Event", "HistoryError", "Rule", "Summary", "Violation", "check", "decode", "encode"]
