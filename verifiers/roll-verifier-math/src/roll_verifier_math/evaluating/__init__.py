"""The values of formulas: exact, algebraic, numeric, proved."""
