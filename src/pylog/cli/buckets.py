"""The options with which commands reach a bucket. Credentials come from the environment: a command line is no place for them."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

RegionOption = Annotated[str | None, Parameter(name="--region")]
EndpointOption = Annotated[str | None, Parameter(name="--endpoint")]
AccountOption = Annotated[str | None, Parameter(name="--account")]
AnonymousOption = Annotated[bool, Parameter(name="--anonymous", show_default=False)]


def access(region: str | None, endpoint: str | None, account: str | None, anonymous: bool) -> dict[str, Any]:
    """Returns the options of `open_objects`."""
    given = {"region": region, "endpoint": endpoint, "account": account}
    return {name: value for name, value in given.items() if value is not None} | ({"anonymous": True} if anonymous else {})
