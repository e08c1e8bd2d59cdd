"""The producer: takes records one at a time from any number of threads, and appends them to partitions in batches.

`producer` (what users call) puts each record into `buffer`, as the `future` that it is answered with. `sender`, one thread a
producer, takes what is there, makes `columns` of it, asks the partitioner, and appends each partition's part as a batch that is
numbered (`numbering`), so that a log takes it once.
"""
