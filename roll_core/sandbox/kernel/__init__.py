"""What the jail asks of the Linux kernel: system calls, filters, Landlock, mounts. Standard library only."""
