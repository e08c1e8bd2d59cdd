"""The options with which commands reach a bucket. Credentials come from the environment: a command line is no place for them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, get_type_hints

from cyclopts import Parameter


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """The options of a command for a bucket, as one parameter of its function."""

    region: Annotated[str | None, Parameter(help="Region of an S3 bucket.")] = None
    endpoint: Annotated[str | None, Parameter(help="URL of a server that is not the provider's own.")] = None
    account: Annotated[str | None, Parameter(help="Name of an Azure storage account.")] = None
    anonymous: Annotated[bool, Parameter(help="Send no credentials.", show_default=False)] = False
    sse: Annotated[str | None, Parameter(help="How S3 encrypts new objects: AES256, aws:kms or aws:kms:dsse.")] = None
    sse_kms_key_id: Annotated[str | None, Parameter(help="With aws:kms: id or ARN of the key in AWS KMS.")] = None

    def access(self) -> dict[str, Any]:
        """Returns the options of `open_objects` that were given."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in {None, False}}


Bucket.__annotations__ = get_type_hints(Bucket, include_extras=True)  # once: a command evaluates no text while it works
DEFAULT_BUCKET: Final = Bucket()
