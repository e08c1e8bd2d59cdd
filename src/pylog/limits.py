"""Every limit in pylog, with its reason. Loops over file data and allocations from file data obey these limits."""

from __future__ import annotations

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Kafka's own limits.
MAX_TOPIC_NAME_CHARACTERS = 249  # Topic.java: the directory name must leave room for "-<partition>" and a suffix
MAX_SEGMENT_BYTES = INT32_MAX  # positions in indexes are int32
MAX_RELATIVE_OFFSET = INT32_MAX  # offsets in indexes are relative to the segment's base
DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_SEGMENT_INDEX_BYTES = 10 << 20
DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_SEGMENT_MS = 7 * 86_400_000
DEFAULT_RETENTION_MS = 7 * 86_400_000
DEFAULT_REMOTE_DELETE_DELAY_MS = 24 * 3_600_000  # a job that was planned before a deletion still finds its segments
DEFAULT_SWEEP_GRACE_MS = 7 * 86_400_000  # an upload, a restore or a job that takes longer starts again
DEFAULT_SWEEP_HISTORY_MS = 30 * 86_400_000
MIN_SWEEP_GRACE_MS = 3_600_000  # a writer that paused tells by it, and by times of whole seconds, what came after it
DEFAULT_DELETE_RETENTION_MS = 86_400_000
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000  # KIP-1030
DEFAULT_MAX_MESSAGE_BYTES = (1 << 20) + 12
DEFAULT_OFFSETS_SEGMENT_BYTES = 100 << 20  # of __consumer_offsets

# Limits on the cost of data from files.
MAX_BATCH_DECOMPRESSED_BYTES = 64 << 20  # a zstd bomb expands 32,000 times; Kafka's default batch limit is 1 MiB
MAX_BATCH_HEADERS = 1 << 20  # of one batch: each takes 150 bytes as an object; Kafka's default batch holds half as many
MAX_COMPRESSED_BATCH_BYTES = 512 << 20  # snappy-java's own bound on one chunk
RESYNC_HASHED_BYTES = 256 << 20  # bytes hashed in the searches for good batches after damage in a walk of a file: anything can
RESYNC_HASHED_PER_BYTE = 4  # look like a header. So many more for each byte of the file: a sound batch is hashed once
MAX_PARTITIONS = 1_000_000  # of all topics in `pylog.json`: a few bytes there name them, and their numbers must fit in memory
MAX_SNAPSHOT_BYTES = 256 << 20  # of a partition's producers: 46 bytes each, 5.8 million
LEAST_INDEX_LIMIT_BYTES = 32 << 20  # of an index, however small its segment: brokers preallocate 10 MiB
LEAST_BATCH_BYTES = 26  # of any format: bounds the entries of an index or a seal, and so its size
MOST_MEMORY_PER_BYTE = 64  # of a small file: what it holds becomes Python objects. tests/test_doors.py doubles each kind
MAX_SEAL_BYTES = 64 << 20  # 4 million marks, one for each 512 bytes of the largest segment
MAX_SEAL_MARKS = 4 << 20
LEAST_SEAL_LIMIT_BYTES = 512 << 10  # of a seal, however small its segment: a compaction replaces up to 60,000 segments by one
RESERVE_BYTES = 64 * 1024  # of the disk, for the small files of calls that free room: checkpoints and the catalog
MAX_CHECKPOINT_LINES = 1_000_000  # of one: a line becomes objects of some 400 bytes
MAX_BOOT_ID_BYTES = 128  # at the start of a lock file; zeros follow, which reserve room for small files
MARKER_BYTES = 4096  # of a clean-shutdown marker, or a partition.metadata file: each has fewer than 100
META_PROPERTIES_BYTES = 1 << 20  # a broker writes fewer than 200
MAX_CHECKPOINT_BYTES = 64 << 20  # a text file with one line per partition

CATALOGUE_INTERVAL_S = 60.0  # between two catalogues of a topic, which cost three requests for each of its partitions
MANIFEST_SEGMENTS = 4000  # in a manifest: 100 KB for each commit. The oldest of more go to an object of their own
MAX_MANIFEST_BYTES = 512 << 20  # of an archive's manifest, decompressed: 250 bytes for each segment
MANIFEST_EXPANSION = 100  # a manifest's JSON compresses to a tenth
MAX_TIER_MANIFEST_BYTES = 16 << 20  # of a segment in a broker's tier: base64 of the sizes of its chunks
MAX_BUNDLE_BYTES = 512 << 20  # of the small files of a segment in an archive: an index, a seal and a snapshot at their limits
MAX_TIER_CHUNKS = 1 << 22  # of a segment in a broker's tier: chunks of 512 bytes; the plugin's recommendation is 4 MiB
MAX_TIER_CHUNK_BYTES = 256 << 20  # of one that is compressed or encrypted: it must fit in memory as a whole

MAX_PLAN_BYTES = 64 << 20  # a file of offsets for a reset of groups: one line per partition, about 60 bytes each

MAX_GROUP_BYTES = (
    2**15 - 1
)  # of a consumer group's name, and of a transactional id: keys of internal topics store its size as int16
MAX_CLIENT_TEXT_CHARACTERS = 1024  # of a client's or an instance's id: all members are written together
MEMBER_SLOTS = 65_536  # of a file of live group members: liveness checks read no more of them
TRANSACTIONAL_IDS_IN_USE = 1000  # by `Store.transaction`, in one store: each holds a lock; a new use of an id costs an epoch
MAX_METADATA_CHARACTERS = (2**15 - 1) // 3  # of a committed offset: up to three bytes each, and their size is an int16

COMMIT_AGAIN_SECONDS = 3600  # between commits of an unchanged position; or a quarter of the offset retention, if less

# Sizes that trade memory for speed.
APPEND_BATCH_BYTES = 128 << 10  # record bytes of one batch: large enough for columns, small enough for random reads
APPEND_CHUNK_BYTES = 4 << 20  # encoded bytes between two writes: fits the cache
APPEND_BUFFERS_BYTES = 32 << 20  # kept for the next appends of the process: two buffers for each of four threads
FEW_RECORDS = 16  # in one call: plain Python encodes up to this many faster than a kernel
DEFAULT_DEDUPE_BUFFER_BYTES = 128 << 20  # keys of one compaction round, 16 bytes each: five million, like Kafka's default
FLUSH_BYTES = 64 << 20  # with Durability.INTERVAL: an append flushes first if more bytes than this are not synced
WRITE_BACK_BYTES = 16 << 20  # sent to the disk at a time, ahead of the next sync
PREALLOCATE_AFTER = 16  # syncs in a row: a program that appends only a few times leaves no file larger than its log
PREALLOCATE_AGAIN = 1000  # after a full disk: syncs until preallocation is tried again
PREALLOCATED_COMMITS = 16  # commits of the last one's size that one preallocation covers
PREALLOCATED_BYTES = 2 << 20  # of zeros at most: a millisecond of writing
LEAST_PREALLOCATED_BYTES = 64 << 10  # of zeros at least: hundreds of small appends
PREALLOCATE_UP_TO_BYTES = 256 << 10  # of a commit: after a larger one zeros cost as much as they save
EXTENT_BYTES = 1 << 16  # the first piece of a copy after a hole: a page of data there costs at most 16 times its bytes
READ_CHUNK_BYTES = 2 << 20  # the later preads of a walk, each four times as large: fixed costs per chunk then matter little
FIRST_CHUNK_BYTES = 256 << 10  # the first pread of a walk: a walk over a batch or two does not wait for megabytes
SCAN_CHUNK_BYTES = 4 << 20  # the later preads of a walk, each four times as large: fixed costs then matter little
VERIFY_CHUNK_BYTES = 4 << 20  # the same, where another thread reads the next chunk meanwhile
LOOKUP_CHUNK_BYTES = 34 << 10  # one pread of a record lookup: its batch of 16 KiB, the batch before it, the next header
SCAN_ROWS = 65_536  # rows of one Arrow batch: measured best for Arrow and for Spark
REMOTE_BLOCK_BYTES = 8 << 20  # one request of a walk of an object
REMOTE_BLOCKS_AHEAD = 7  # that a walk has in flight: 64 MiB of memory with its own block
REMOTE_WINDOW_BYTES = 512 << 10  # that a lookup reads of an object: some batches
REMOTE_THREADS = 8  # in one process.
REMOTE_IDLE_SECONDS = 0.1  # that one of them waits for work before it ends, and by which the process's end is held up
CACHED_BLOCK_BYTES = 1 << 20  # a file of a cache on the disk: a lookup fetches one or two
DEFAULT_CACHE_BYTES = 10 << 30  # of blocks on the disk, for all processes that share the directory
MIN_CACHE_BYTES = 16 << 20  # of the same: some blocks
MAX_REQUEST_SECONDS = 86_400  # of a request to an object store: no request is useful for longer
REMOTE_CACHE_BYTES = 64 << 20  # of small objects, in one process.
SCAN_BYTES = 16 << 20  # record bytes of one Arrow batch
SCAN_BATCHES = 8192  # batch headers read in one kernel call
UNPACKED_ROOM_BYTES = 8 << 20  # for a group of batches: one thread decompresses larger batches, into one buffer
UNPACKED_GROUP_BYTES = 1 << 20  # decompressed records decoded at a time: they stay in the cache, and threads synchronise rarely
MAPPED_RESIDENT_BYTES = 96 << 20  # of mapped segments: pages that scans keep in memory, over the whole process
OPEN_FILES = 1024  # segments, each mapped with its indexes, and headers open for reading, at most (`vm.max_map_count` is 65,530)
OPEN_WRITERS = 192  # partitions that a process keeps ready for writing at most: two descriptors and some 60 KiB each
GROUP_NUMBERS = 10_000  # consumer groups whose partition of __consumer_offsets is cached: hashing a name takes microseconds
DELETED_ROUTES = 16  # deleted topics whose metadata a producer keeps: another process may create the topic again
PRODUCER_BATCH_BYTES = 512 << 10  # record bytes of a producer's batch: each batch is an append, and with SYNC a sync
PRODUCER_LARGEST_BATCH_BYTES = 1 << 20  # a larger batch is no cheaper to write, and slower for reads of single records
PRODUCER_BUFFER_BYTES = 32 << 20  # Kafka's buffer.memory
PRODUCER_TAKE_RECORDS = 16_384  # of the buffer that the producer's thread handles at a time: some batches for a few partitions
PRODUCER_TAKE_BYTES = 16 << 20
TRANSACTION_BUFFER_BYTES = 16 << 20  # records of a transaction that wait in memory: small ones are one batch a partition
STAGING_BUFFER_BYTES = 32 << 20  # rows that a task collects before it splits them by partition: memory peaks at three times that
SPLICE_BYTES = 64 << 20  # appended to a log at a time from staging files: one sync; other writers of the partition wait that long
SPLICE_FILES = 64  # staging files open for such an append
STAGING_UNSEEN_MS = 7 * 86_400_000  # age at which files of a job on another machine are deleted: jobs do not take longer
RECORD_CHUNK_ROWS = 2048  # records converted to Python objects at a time: they stay in the cache until they are used

# Threads that share syncs (`log/writing/group_commit.py`), in seconds.
SLOW_COMMIT_S = 0.001  # after a faster commit, waiting for other threads does not pay
LONGEST_GIVING_WAY_S = 0.002  # a slow commit may also have waited for another process
WAKING_S = 0.001  # for waking threads one after the other: twenty of them take a third of it
ASK_AGAIN_S = 0.05  # between two listings of a directory without a header, for reads of known offsets
LONGEST_SLEEP_S = 0.1  # between two checks of a thread that no other thread wakes

ITERATION_CHECK_S = 0.1  # between two checks of its group by an iteration that still has records
TRANSACTIONS_CHECK_S = 0.5  # between two checks by a polling consumer whether it waits for a dead process's transaction
COMMITS_WAITING = 1_000  # background commits in the queue; another call waits for them
MEMBER_PROBE_S = 0.25  # between two checks of the other group members by a polling consumer

TOPICS_AGE_S = 0.5  # after this many seconds a consumer lists the topics again; changes by its own store are seen at once

# Waiting for other processes, in seconds. Measured: a reader that checks each millisecond takes 4 % of a core.
SHORTEST_NAP = 0.0001
LONG_NAP = 0.001  # while new data may arrive at any moment
LONGEST_NAP = 0.025  # after 2.5 s without new data: a waiting reader takes 0.4 to 0.5 % of a core then
NAPS_OF_SILENCE = 100  # a nap is at most this fraction of the time without new data, but at least a long nap
LONGEST_WAIT_MS = 10**12  # about thirty years: the limit of the system's timed waits

# Kafka's producer ids.
PRODUCER_IDS = (1 << 48, 1 << 62)  # used by pylog, far above the ids that a broker assigns (reliability 10)
MAX_PRODUCER_EPOCH = 2**15 - 1
HANGING_TRANSACTION_MS = 20 * 60_000  # a broker's transaction.max.timeout.ms, and five minutes more, as in its own check

# Lag and health of groups.
LAG_COUNT_BYTES = 1 << 30  # of batches whose headers one observation reads to count unread records; more is not counted
TALLY_BYTES = 64 << 20  # of batches whose headers one observation of the window reads to count records; 50 ms
COMMITS_AT_ONCE = 32_768  # records of __consumer_offsets read at a time, newest first
COMMITS_SEARCHED = 262_144  # of these records at most, for groups that commit seldom
RECENT_BYTES = 64 << 20  # of the segments whose producers the window lists; 50 ms of header reading
COMMITS_KEPT = 20  # of a group in a partition, spread over the window; the last ten are kept besides
