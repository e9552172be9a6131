"""Domains: rows to prompts, their order, the draw from a mixer, tickets and the ledger."""

from __future__ import annotations

from roll_core.data.draw import Draw
from roll_core.data.held_out import HeldOut, Overlap
from roll_core.data.ledger import Ledger, LedgerError, LedgerReport, TicketState
from roll_core.data.prompts import LeftOut, PromptBuilder
from roll_core.data.rows import RowError
from roll_core.data.seeds import keyed_order, keyed_seed
from roll_core.data.streams import DomainStream

__all__ = [
    "DomainStream",
    "Draw",
    "HeldOut",
    "Ledger",
    "LedgerError",
    "LedgerReport",
    "LeftOut",
    "Overlap",
    "PromptBuilder",
    "RowError",
    "TicketState",
    "keyed_order",
    "keyed_seed",
]
