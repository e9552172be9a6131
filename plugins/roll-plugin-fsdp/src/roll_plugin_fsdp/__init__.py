"""The train strategy `fsdp`: forward, backward and optimiser over the ranks of a process group.

`strategy.FsdpStrategy` lives in the driver, `rank.Rank` in every rank's process.
"""
