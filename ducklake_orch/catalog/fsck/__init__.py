"""Find and explain every broken state of a lake, and repair those that can be repaired without guessing.

Checks run on a local copy of the catalog. `fsck` is the entry point; it reports findings, and repairs them on request.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.fsck.run import fsck
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
