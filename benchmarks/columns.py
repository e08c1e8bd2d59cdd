"""Files of columns by pyarrow: Parquet and Arrow's own. They take record batches as `append_arrow` does.

Neither can be appended to once it is closed, and neither has an index of offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq


class Parquet:
    """Without compression, and without dictionaries, which values that are all different do not need. With checksums of pages."""

    name = "Parquet (pyarrow), uncompressed, page checksums"

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """All rows to a new file, a row group for each batch."""
        options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
        with pq.ParquetWriter(self._path, batches[0].schema, **options) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def scan(self) -> int:
        """Reads every row into new memory, in one thread; returns how many there were."""
        with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
            return sum(batch.num_rows for batch in file.iter_batches(batch_size=65_536, use_threads=False))


class ArrowFile:
    """Arrow's own format. It is read and not mapped: mapped, nothing would be read before somebody looks at a value."""

    name = "Arrow IPC file (pyarrow), no checksums"

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """All rows to a new file."""
        with pa.OSFile(str(self._path), "wb") as file, pyarrow.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def scan(self) -> int:
        """Reads every row into new memory; returns how many there were."""
        options = pyarrow.ipc.IpcReadOptions(use_threads=False)
        with pa.OSFile(str(self._path), "rb") as file, pyarrow.ipc.open_file(file, options=options) as reader:
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


ALL: tuple[type[Parquet | ArrowFile], ...] = (Parquet, ArrowFile)
