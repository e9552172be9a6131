"""Advantage estimators, one file each. Unscored rollouts never reach them."""
