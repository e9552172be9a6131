"""From prompts to scored, admitted groups: the coroutine of one rollout and the scheduler over many."""
