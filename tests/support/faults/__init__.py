"""File systems that fail, disks that lose power, interrupts, other processes."""
