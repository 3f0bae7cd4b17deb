"""What a run may still use, of money, tokens, steps, time and window, and what that leaves room for.

`Means` decides nothing: it measures, holds back what the hand-back will need, and reserves.
"""

from __future__ import annotations

import math
from typing import Any

from remit.amounts import ZERO, Amount
from remit.budget import Budget, Exhausted, Left, Reservation
from remit.clock import RunClock, median
from remit.config import Config
from remit.current import Frame
from remit.elide import Elision, Window, choose
from remit.marks import budget_note
from remit.occupancy import fixed_tokens, what_fills
from remit.outcome import Reason
from remit.quote import CLOSING_OUTPUT, OUTPUT_FLOOR, Quote, quote, worst_case
from remit.state import Limit, RunState

__all__ = ["LIMIT_REASONS", "Means", "limit_of"]

LIMIT_REASONS = {
    "steps": Reason.STEP_BUDGET,
    "calls": Reason.CALL_BUDGET,
    "tokens": Reason.TOKEN_BUDGET,
    "usd": Reason.COST_BUDGET,
}

_DEFAULT_OUTPUT = 8_192
"""Output cap in tokens where the settings name none."""


class Means:
    """The means of one activation of one run."""

    __slots__ = (
        "_clock",
        "_config",
        "_fixed_tokens",
        "_look_above",
        "_quoted",
        "_shareless",
        "_state",
        "_window",
        "budget",
    )

    def __init__(
        self,
        config: Config,
        state: RunState,
        clock: RunClock,
        *,
        frame: Frame | None,
        reserve: bool,
    ) -> None:
        """`reserve` sets a share aside for this run, out of the account of the call around."""
        self._config = config
        self._state = state
        self._clock = clock
        self.budget, self._shareless = _account(config.name, state, frame, reserve=reserve)
        """The account, and the limit that left no room for the share that was to be set aside."""
        self._quoted: tuple[int, Quote] | None = None
        """The prompt that `plan` was told there is room for, in tokens, and what it may cost; None where none
        fits the window."""
        self._window = Window.of(config.model.profile.context_window, self._output_cap)
        self._look_above = self._window.trigger
        """Above how many tokens of prompt it is worth to look for what could make room."""
        self._fixed_tokens = fixed_tokens(state.opened.instructions, config.described)

    # What `plan` is told

    def limit(self) -> Limit | None:
        """The limit that the next step would pass, if there is one."""
        return self._shareless or self._time_limit() or self._quote_limit()

    def crowding(self, limit: Limit | None) -> tuple[Elision | None, str | None]:
        """What can make room in the context, where it is crowded; else, where it is full, what fills it."""
        full = self._state.overflowed or (limit is None and self._quoted is None)
        crowded = full or self.prompt_tokens > self._look_above
        elision = self._elision() if crowded else None
        return elision, self._full() if full and elision is None else None

    def closing_fits(self) -> bool:
        """Whether there is room for the one call in which the work comes back in words."""
        return (
            self._config.hand_back
            and self._clock.time() < self._clock.ends_at
            and isinstance(self.quote(self.prompt_tokens, closing=True), Quote)
        )

    def marks(self) -> tuple[Any, ...]:
        """What the model is to be told of what is left."""
        return budget_note(
            self._state.limits,
            self.budget.spend.tree,
            seconds_left=self._clock.ends_at - self._clock.time(),
            told=self._state.told,
        )

    # Asking and calling

    def quote(self, prompt: int, *, closing: bool) -> Quote | Limit | None:
        """What a model call may cost, or the limit that forbids it; None where only the window does.

        Units: `prompt` is in tokens.
        """
        cap = self._output_cap
        cap, floor = (
            (min(cap, CLOSING_OUTPUT), min(cap, CLOSING_OUTPUT // 4))
            if closing
            else (cap, min(cap, OUTPUT_FLOOR))
        )
        profile, steps = self._config.model.profile, 0 if closing else 1
        beside = profile.context_window - prompt
        if beside < cap:  # prompt and output share the window
            cap = max(beside, floor)
        left = self.budget.left(held=closing)
        found = quote(
            profile,
            prompt=prompt,
            cap=cap,
            floor=floor,
            left=left,
            steps=steps,
            echoed=self._hands_back and not closing,
        )
        if not isinstance(found, Quote):
            least = worst_case(profile, prompt=prompt, output=floor, steps=steps)
            lack = self._lack(least, held=closing)
            return lack or Limit(LIMIT_REASONS[found], self.budget.name)
        if _is_used_up(left):
            lack = self._lack(found.amount, held=closing)
            if lack is not None:
                return lack
        return found if beside >= floor else None

    def _lack(self, amount: Amount, *, held: bool) -> Limit | None:
        """The limit that has no room for so much, if there is one, and whose it is.

        What is left is never negative: whether an account is at its limit or past it shows only when
        something is reserved.
        """
        reserved = self.budget.reserve(amount, held=held)
        if isinstance(reserved, Exhausted):
            return limit_of(reserved)
        reserved.refund()
        return None

    def reserve(self, *, closing: bool) -> tuple[Quote, Reservation] | None:
        """Quote and reserve the next model call; None where a limit forbids it, which `plan` then sees."""
        prompt, self._quoted, quoted = self.prompt_tokens, None, self._quoted
        if closing or quoted is None or quoted[0] != prompt:
            offer = self.quote(prompt, closing=closing)
        else:
            offer = quoted[1]  # `plan` was told of it, and nothing was said since
        if not isinstance(offer, Quote):
            return None
        reserved = self.budget.reserve(offer.amount, held=closing)
        return (offer, reserved) if isinstance(reserved, Reservation) else None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the next prompt: what the provider counted last, and an estimate of the rest."""
        state = self._state
        if state.context_tokens:
            return state.context_tokens + math.ceil(state.growth * state.density)
        return self._fixed_tokens + state.transcript.tokens

    @property
    def tools_until(self) -> float:
        """When tools, and the model calls of steps, are cut."""
        return self.tools_end()[0]

    def tools_end(self) -> tuple[float, str]:
        """The same, and whose clock says so."""
        end, whose = self._clock.end()
        return end - self._clock.kept(self._state.latencies), whose

    @property
    def _output_cap(self) -> int:
        wanted = self._config.settings.max_output or _DEFAULT_OUTPUT
        return min(wanted, self._config.model.profile.max_output)

    def _time_limit(self) -> Limit | None:
        """Whether the next reply may be expected to come before steps are cut."""
        until, whose = self.tools_end()
        in_time = self._clock.time() + median(self._state.latencies) < until
        return None if in_time else Limit(Reason.DEADLINE, whose)

    def _quote_limit(self) -> Limit | None:
        self._hold_back()
        prompt = self.prompt_tokens
        found = self.quote(prompt, closing=False)
        if isinstance(found, Limit):
            return found
        self._quoted = None if found is None else (prompt, found)
        return None

    def _hold_back(self) -> None:
        """Keep what the hand-back will need, as far as can be seen from here (L5)."""
        if not self._hands_back:
            self.budget.hold(ZERO)
            return
        output = min(self._output_cap, CLOSING_OUTPUT)
        profile, prompt = self._config.model.profile, self.prompt_tokens + output
        self.budget.hold(worst_case(profile, prompt=prompt, output=output, steps=0))

    def reserve_call(self, amount: Amount) -> Reservation | Exhausted:
        """Take what a call needs from every account up to the root.

        The calls of a step that was begun belong to it: what no longer fits is not kept from them for the
        hand-back.
        """
        reserved = self.budget.reserve(amount)
        if isinstance(reserved, Exhausted) and reserved.whose == self.budget.name:
            self._hold_what_fits()
            reserved = self.budget.reserve(amount)
        return reserved

    def has_room_for(self, amount: Amount) -> bool:
        """Whether so much could be taken now. Nothing is taken."""
        reserved = self.budget.reserve(amount)
        if isinstance(reserved, Exhausted):
            return False
        reserved.refund()
        return True

    def _hold_what_fits(self) -> None:
        """Measure the reserve of the hand-back again, and keep no more than there is."""
        self._hold_back()
        held, left = self.budget.held, self.budget.left(held=True)
        usd = held.usd if left.usd is None else left.usd
        self.budget.hold(held.within(Amount(tokens=left.tokens, usd=usd)))

    @property
    def _hands_back(self) -> bool:
        return self._config.hand_back and self._state.limit is None

    def _elision(self) -> Elision | None:
        """What can make room, if it is progress. Where nothing is found the next look comes a good deal later."""
        state, prompt, window = self._state, self.prompt_tokens, self._window
        if state.overflowed:  # the window is what the provider says it is
            window = Window.of(
                min(prompt, self._config.model.profile.context_window), self._output_cap
            )
        found = None
        if state.may_elide and not state.paused:
            found = choose(state.transcript, window, prompt=prompt, density=state.density)
        self._look_above = prompt + window.rung if found is None else self._window.trigger
        return found

    def _full(self) -> str:
        """What fills the window, in words."""
        window = self._config.model.profile.context_window
        return what_fills(
            None if self._state.overflowed else window,
            instructions=self._state.opened.instructions,
            specs=self._config.described,
            transcript=self._state.transcript,
            density=self._state.density,
        )


def _account(
    name: str, state: RunState, frame: Frame | None, *, reserve: bool
) -> tuple[Budget, Limit | None]:
    """The account of a run: a root, or one inside the call around; and what is in the way of a share of its own."""
    if frame is None:
        root = Budget(name, state.limits)
        root.restore(state.own, state.tree, overshoot=state.overshoot, estimated=state.estimated)
        return root, None
    account = frame.adopt(
        state.run_id,
        name,
        state.limits,
        state.own,
        state.bill,
        ours=state.opened.caller == frame.caller,
        reserve=reserve,
    )
    if isinstance(account, Budget):
        return account, None
    return _account(name, state, frame, reserve=False)[0], limit_of(account)


def _is_used_up(left: Left) -> bool:
    return not (left.steps and left.tokens) or left.calls == 0 or left.usd == 0


def limit_of(refused: Exhausted) -> Limit:
    """Which limit a refused reservation ran into, and whose."""
    return Limit(LIMIT_REASONS[refused.dimension], refused.whose)
