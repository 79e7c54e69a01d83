"""Each role as a process of its own, and all of them in one."""
