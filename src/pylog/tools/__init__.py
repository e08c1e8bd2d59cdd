"""Tools that work on any directory of Kafka's, sound or sick: looking into files, verifying them, repairing them.

`dump` and `verify` open nothing for writing and take no lock, so they work while a broker is running and on read-only media.
`repair` plans first, without touching anything; it carries a plan out under the directory's locks, after a backup.
"""
