"""Built-in train strategy: one process, CPU or one GPU.

Float32 master weights with a compute copy in bfloat16 where the device is faster with it, a group's prompt computed
once, log-probs in chunks, token-budget micro-batches. `strategy.LocalTrainStrategy` is the component.
"""
