"""The live view of a search: round, budget bars, incumbent and last trials on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.streams import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from primus_mcp.session import TuningSession
    from primus_mcp.trials.journal import Round

LAST_TRIALS = 6
BAR_COLUMNS = 24
REASON_COLUMNS = 100
BARS = ("max_proposals", "max_perf_calls", "max_rounds", "max_llm_calls", "max_tokens", "max_usd", "max_wall_minutes")


def _plain(text: str) -> str:
    """The model's words without what a terminal would obey; an indentation stays."""
    from primus_mcp.reports.tables import plain

    return text[: len(text) - len(text.lstrip(" "))] + plain(text)


def trial_line(outcome: Mapping[str, Any]) -> str:
    """One evaluation on a line."""
    rate, memory, number = (outcome.get(name) for name in ("tokens_per_s_per_gpu", "memory_per_gpu_gb", "trial_id"))
    named = f"trial {number if number is not None else '-'}"
    if rate is None:
        reason = " ".join(str(outcome.get("reason") or "no throughput").split())
        return f"{named}: {reason.split(' (')[0][:REASON_COLUMNS]}"
    return f"{named}: {rate:,.0f} tokens/s/GPU" + (f", {memory:.1f} GB" if memory is not None else "")


class View:
    """Plain lines to stderr."""

    def __init__(self, session: TuningSession, *, quiet: bool) -> None:
        self.session, self.quiet = session, quiet

    def say(self, text: str) -> None:
        """A note, also when quiet: it changes what the result is about."""
        print(f"note: {text}", file=sys.stderr)

    def _line(self, text: str) -> None:
        if not self.quiet:
            print(_plain(text), file=sys.stderr)

    def planned(self, plan: str) -> None:
        """The first line of the plan."""
        if plan.strip():
            self._line(f"plan: {plan.strip().splitlines()[0][:120]}")

    def round_started(self, index: int) -> None:
        """Nothing yet to tell."""

    def trial(self, outcome: Mapping[str, Any]) -> None:
        """Its line."""
        self._line(f"  {trial_line(outcome)}")

    def round_ended(self, ended: Round, note: str) -> None:
        """The round's line with the incumbent."""
        self._line(self.round_line(ended, note))

    def round_line(self, ended: Round, note: str) -> str:
        """Whether the round gained, the incumbent, and the note's first line."""
        best = self.session.best().best
        rate = f", best {best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU (trial {best.trial_id})" if best is not None else ", nothing fits yet"
        told = f": {note.strip().splitlines()[0][:100]}" if note.strip() else ""
        return f"round {ended.index}: {'better' if ended.improved else 'no gain'}{rate}{told}"


class LiveView(View):
    """The same as a picture that is redrawn below the lines that stay. Text of the model is text, never markup."""

    def __init__(self, session: TuningSession, live: Live) -> None:
        super().__init__(session, quiet=False)
        self._live = live
        self._last: deque[str] = deque(maxlen=LAST_TRIALS)
        self._round, self._plan = 0, ""

    def say(self, text: str) -> None:
        """Above the picture."""
        self._stays(f"note: {text}")

    def _stays(self, line: str) -> None:
        self._live.console.print(_plain(line), markup=False, highlight=False)

    def planned(self, plan: str) -> None:
        """Shown until the first round ends."""
        self._plan = plan.strip().splitlines()[0][:120] if plan.strip() else ""
        self._draw()

    def round_started(self, index: int) -> None:
        """Its number."""
        self._round = index
        self._draw()

    def trial(self, outcome: Mapping[str, Any]) -> None:
        """Into the list."""
        self._last.append(trial_line(outcome))
        self._draw()

    def round_ended(self, ended: Round, note: str) -> None:
        """Its line stays; the bars move."""
        self._stays(self.round_line(ended, note))
        self._draw()

    def _draw(self) -> None:
        self._live.update(self._picture())

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        def line(text: str) -> Text:
            return Text(_plain(text), no_wrap=True, overflow="ellipsis")

        grid = Table.grid(padding=(0, 1))
        best = self.session.best().best
        incumbent = f"{best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, trial {best.trial_id}" if best is not None else "nothing fits yet"
        for row in self.session.spending():
            if row.name in BARS and row.limit:
                bar = ProgressBar(total=row.limit, completed=min(row.spent, row.limit), width=BAR_COLUMNS)
                grid.add_row(row.name.removeprefix("max_"), bar, f"{row.spent:,.4g} of {row.limit:,g}")
        plan = [line(f"plan: {self._plan}")] if self._plan else []
        doing = f"round {self._round}" if self._round else "planning"
        spinner = Spinner("dots", text="waiting for the model or pricing")
        return Panel(Group(line(f"best {incumbent}"), grid, *plan, *(line(trial) for trial in self._last), spinner), title=doing)


@contextmanager
def live_view(session: TuningSession, *, quiet: bool) -> Iterator[View]:
    """A picture where stderr is a terminal, lines where it is not, nothing but notes when quiet."""
    from rich.live import Live

    console = terminal()
    if quiet or not console.is_terminal:
        yield View(session, quiet=quiet)
        return
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        view = LiveView(session, live)
        yield view
