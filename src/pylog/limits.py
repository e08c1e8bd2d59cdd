"""Every bound in pylog, each with its reason. Loops over file data and allocations from file data are held to these."""

from __future__ import annotations

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Kafka's own bounds.
MAX_TOPIC_NAME_CHARACTERS = 249  # Topic.java: the directory name must leave room for "-<partition>" and a suffix
MAX_SEGMENT_BYTES = INT32_MAX  # positions in indexes are int32
MAX_RELATIVE_OFFSET = INT32_MAX  # offsets in indexes are relative to the segment's base
DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_SEGMENT_INDEX_BYTES = 10 << 20
DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_SEGMENT_MS = 7 * 86_400_000
DEFAULT_RETENTION_MS = 7 * 86_400_000
DEFAULT_DELETE_RETENTION_MS = 86_400_000
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000  # KIP-1030
DEFAULT_MAX_MESSAGE_BYTES = (1 << 20) + 12
DEFAULT_OFFSETS_SEGMENT_BYTES = 100 << 20  # of __consumer_offsets

# Bounds on what foreign bytes may cost.
MAX_BATCH_DECOMPRESSED_BYTES = 64 << 20  # a zstd bomb expands 32,000 times; Kafka's default batch limit is 1 MiB
MAX_COMPRESSED_BATCH_BYTES = 512 << 20  # snappy-java's own bound on one chunk
RESYNC_HASHED_BYTES = 256 << 20  # hashed while looking for a good batch behind damage: bytes can look like headers everywhere
MAX_PARTITIONS = 1_000_000  # of one topic: a directory listing is the only source, and it must fit in memory
MAX_SNAPSHOT_BYTES = 256 << 20  # of a partition's producers: 46 bytes each, 5.8 million
LEAST_INDEX_LIMIT_BYTES = 32 << 20  # of an index, however small its segment: brokers preallocate 10 MiB
LEAST_BATCH_BYTES = 26  # of any format: what an index or seal can have for each bounds its file
MAX_SEAL_BYTES = 64 << 20  # 4 million marks, one for each 512 bytes of the largest segment
MAX_SEAL_MARKS = 4 << 20
MARKER_BYTES = 4096  # of a clean-shutdown marker, or a partition.metadata: each has fewer than 100
MAX_CHECKPOINT_BYTES = 64 << 20  # a text file with one line a partition

MAX_PLAN_BYTES = 64 << 20  # a file of offsets to reset groups to: a line a partition, some 60 bytes each

MAX_GROUP_BYTES = 2**15 - 1  # of a consumer group's name: keys in __consumer_offsets have its size as int16
MAX_CLIENT_TEXT_CHARACTERS = 1024  # of a client's or an instance's id: all members' are written together
MEMBER_SLOTS = 65_536  # of a file of living group members: as many as are looked at
MAX_METADATA_CHARACTERS = (2**15 - 1) // 3  # of a committed offset: each takes up to three bytes, and their size is an int16

COMMIT_AGAIN_SECONDS = 3600  # a consumer's automatic commit of what has not moved, or a quarter of the time that offsets are kept

# Sizes that trade memory for speed.
APPEND_BATCH_BYTES = 128 << 10  # record bytes of one batch: large enough for columns, small enough to read at random
APPEND_CHUNK_BYTES = 4 << 20  # encoded bytes between two writes: fits the cache
FEW_RECORDS = 16  # of one call: faster encoded in plain Python than by a kernel
DEFAULT_DEDUPE_BUFFER_BYTES = 128 << 20  # keys of one round of compaction, 16 bytes each: five million, as Kafka's default
FLUSH_BYTES = 64 << 20  # at Durability.INTERVAL: unsynced bytes beyond which an append flushes first
WRITE_BACK_BYTES = 16 << 20  # sent to the disk at a time, ahead of a sync to come
PREALLOCATE_AFTER = 16  # syncs in a row: who appends a few times leaves no file larger than its log
PREALLOCATE_AGAIN = 1000  # syncs behind which that is tried again, once there was no room
PREALLOCATED_COMMITS = 16  # so many of the size of the last one find zeros behind the end
PREALLOCATED_BYTES = 2 << 20  # of zeros at most: a millisecond's writing
LEAST_PREALLOCATED_BYTES = 64 << 10  # at least: hundreds of small appends
PREALLOCATE_UP_TO_BYTES = 256 << 10  # of a commit: behind a larger one the zeros cost as much as they save
READ_CHUNK_BYTES = 2 << 20  # one pread of what is copied or compared: large enough for few calls, small enough for the cache
FIRST_CHUNK_BYTES = 256 << 10  # the first pread of a walk: one that wants a batch or two does not wait for megabytes
SCAN_CHUNK_BYTES = 4 << 20  # those that follow, four times as large each: what every chunk costs besides weighs little then
VERIFY_CHUNK_BYTES = 4 << 20  # the same where the next one is read meanwhile
LOOKUP_CHUNK_BYTES = 34 << 10  # one pread when a record is looked for: its batch of 16 KiB, the one before, a header behind
SCAN_ROWS = 65_536  # rows of one Arrow batch: measured best for Arrow and for Spark
SCAN_BYTES = 16 << 20  # record bytes of one Arrow batch
SCAN_BATCHES = 8192  # batch headers looked at in one kernel call
UNPACKED_ROOM_BYTES = 8 << 20  # for a group: larger batches are decompressed by one thread, into one place
UNPACKED_GROUP_BYTES = 1 << 20  # decompressed records decoded at a time: they stay in the cache, and threads meet seldom
MAPPED_RESIDENT_BYTES = 96 << 20  # pages of mapped segments that scans keep in memory, over the whole process
OPEN_FILES = 256  # segments and headers that one store keeps open for reading (`RLIMIT_NOFILE`, `vm.max_map_count`)
OPEN_WRITERS = 192  # partitions that one store keeps ready for writing: two descriptors each; systems begin with 1,024 a process
GROUP_NUMBERS = 100_000  # consumer groups whose partition of __consumer_offsets is remembered: hashing a name takes microseconds
PRODUCER_BATCH_BYTES = 512 << 10  # record bytes of a producer's batch: each is an append, and at SYNC a sync
PRODUCER_LARGEST_BATCH_BYTES = 1 << 20  # a larger one is no cheaper to write, and dearer to read a record of
PRODUCER_BUFFER_BYTES = 32 << 20  # Kafka's buffer.memory
PRODUCER_TAKE_RECORDS = 16_384  # of the buffer that its thread works on at a time: some batches' worth for a few partitions
PRODUCER_TAKE_BYTES = 16 << 20
STAGING_BUFFER_BYTES = 32 << 20  # rows that a task collects before it parts them by partition: three times that is in memory
SPLICE_BYTES = 64 << 20  # appended to a log at a time from staging files: one sync; others wait for the partition so long
SPLICE_FILES = 64  # staging files open for that
STAGING_UNSEEN_MS = 7 * 86_400_000  # how long files of a job on another machine are left alone: jobs do not take longer
RECORD_CHUNK_ROWS = 2048  # records turned into Python objects at a time: they stay in the cache until they are used

# Threads that share syncs (`log/appending.py`), in seconds.
SLOW_COMMIT_S = 0.001  # behind one that takes less there is no time to lose
LONGEST_GIVING_WAY_S = 0.002  # a commit may also have waited for another process
WAKING_S = 0.001  # that threads are woken one after the other: twenty of them take a third of it
ASK_AGAIN_S = 0.05  # between two listings of a directory without a header, for reads of offsets that are known
LONGEST_SLEEP_S = 0.1  # between two looks of a thread that nobody wakes

ITERATION_LOOK_S = 0.1  # seconds between two looks of an iteration at its group, while it has records in hand
COMMITS_WAITING = 1_000  # commits in the background that wait; a call beyond that waits for them
MEMBER_PROBE_S = 0.25  # seconds between two looks of a polling consumer at the other members of its group

TOPICS_AGE_S = 0.5  # seconds after which a consumer lists the topics again; it sees changes of its own store at once

# Waiting for other processes, in seconds: measured, a reader that looks each millisecond takes 4 % of a core.
SHORTEST_NAP = 0.0001
LONG_NAP = 0.001  # as long as something may come any moment
LONGEST_NAP = 0.01  # after a hundred seconds without anything
NAPS_OF_SILENCE = 10_000  # a nap is at most such a part of the time in which nothing has come, or else a long one
LONGEST_WAIT_MS = 10**12  # some thirty years: what the system's timed waits take

# Kafka's, of producers.
PRODUCER_IDS = (1 << 48, 1 << 62)  # pylog's own, far above those that a broker hands out (reliability 10)
MAX_PRODUCER_EPOCH = 2**15 - 1
