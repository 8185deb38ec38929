"""Parameter: the parameters cell as the press knows it; read one room below, in the ledger.

Owns nothing. The submission checker needs the same reading, and the ledger imports no press.
"""

from assay.ledger.parameter import Parameter, Value, declared, effective

__all__ = ["Parameter", "Value", "declared", "effective"]
