"""Ledger: what was claimed, what was found, and the verdict that follows.

Owns the records (schemas), the store (the only place that touches disk), the judge (a pure
function) and the submission checker. Does not own measuring, printing or executing.
"""
