"""Gives deltalake the options of a store under which two writers cannot both write one version. Pure."""

from collections.abc import Mapping

from barnabas_spark.lake.table import TableError

__all__ = ["delta_options"]

ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
# As of the files beside the log (object_store.py). By itself it repeats a request for three minutes.
PATIENCE = {"max_retries": "5", "retry_timeout": "60s"}


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return `options` with what they lack: versions are written by a conditional request.

    Raises:
        TableError: the options say otherwise.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    if lowered.get("aws_s3_allow_unsafe_rename", "false").lower() in {"true", "1"}:
        raise TableError("AWS_S3_ALLOW_UNSAFE_RENAME lets two writers write one version of a Delta table; leave it out")
    if lowered.get("aws_conditional_put", "etag") != "etag":
        raise TableError("aws_conditional_put must be 'etag', or two writers write one version of a Delta table")
    wanted = {"aws_conditional_put": "etag", **PATIENCE}
    if any(lowered.get(name, "").startswith("http://") for name in ENDPOINTS):
        wanted["allow_http"] = "true"
    return {**{name: value for name, value in wanted.items() if name not in lowered}, **options}
