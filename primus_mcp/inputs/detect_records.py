"""What the vendors' tools said about a host."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_SHOWN = 80


def plain(text: object) -> str:
    """Text of a tool as one short printable line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """One device of a list. What the tool did not say is None; `mig`: split into instances."""

    name: str | None = None
    pci_device: str | None = None
    memory_mib: float | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    partition_id: int | None = None
    mig: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNic:
    """One network controller or RDMA port. `active` None: the tool does not say."""

    name: str
    active: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """One output. `tool`: the command it comes from; `where`: the file, or this host. `links`: types of the links between GPUs."""

    tool: str
    where: str
    gpus: tuple[SeenGpu, ...] | None = None
    links: tuple[str, ...] | None = None
    nics: tuple[SeenNic, ...] = field(default=())

    @property
    def source(self) -> str:
        """Tool and place, for a comment."""
        return f"{self.tool}, {plain(self.where)}"
