"""The zygote: a process that has loaded everything once and forks one jailed child for each run."""
