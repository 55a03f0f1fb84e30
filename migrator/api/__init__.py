"""What torch_npu offers, per wheel: names, signatures, operators, and what each CUDA name becomes.

Nothing here imports torch or torch_npu. The data is read lazily from ``migrator/api/data`` and rebuilt
from the real wheels by ``python -m migrator.api.refresh``; docs/api-data.md tells how.
"""

from migrator.api._env import EnvStatus, EnvVar, env
from migrator.api._mapping import Kind, Mapping, mapping, mapping_for, mappings
from migrator.api._names import exists, names, since, until
from migrator.api._signature import Parameter, ParameterKind, Signature, signature
from migrator.api._store import ApiDataError
from migrator.api._support import Support, SupportStatus, support
from migrator.api._versions import Resolved, at_least, resolve, versions

__all__ = [
    "ApiDataError",
    "EnvStatus",
    "EnvVar",
    "Kind",
    "Mapping",
    "Parameter",
    "ParameterKind",
    "Resolved",
    "Signature",
    "Support",
    "SupportStatus",
    "at_least",
    "env",
    "exists",
    "mapping",
    "mapping_for",
    "mappings",
    "names",
    "resolve",
    "signature",
    "since",
    "support",
    "until",
    "versions",
]
