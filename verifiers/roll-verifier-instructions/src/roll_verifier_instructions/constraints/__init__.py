"""The constraint types of IFEval, one class each; `registry` lists them."""
