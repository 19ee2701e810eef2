"""What was said: turns, the system prompt, and which of the oldest turns the model no longer sees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Turn:
    """One question and what came back; ``reply`` is None until a reply ended, also when it ended early.

    ``thoughts`` is what the model thought before it, apart from its think tags.
    """

    question: str
    reply: str | None = None
    thoughts: str = ""


@dataclass(slots=True)
class Conversation:
    """All turns of one chat. ``dropped_turns`` of the oldest are shown still, but no longer sent."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    dropped_turns: int = 0

    def ask(self, question: str) -> None:
        """Open a new turn."""
        self.turns.append(Turn(question))

    def answer(self, reply: str, thoughts: str = "") -> None:
        """Close the newest turn with a whole or a partial reply."""
        self.turns[-1].reply, self.turns[-1].thoughts = reply, thoughts

    def reopen(self) -> bool:
        """Forget the newest reply so that it can be generated again; False where there is no turn."""
        if not self.turns:
            return False
        self.turns[-1].reply, self.turns[-1].thoughts = None, ""
        return True

    def take_back(self) -> str:
        """Remove the newest turn and return its question."""
        question = self.turns.pop().question
        self.dropped_turns = min(self.dropped_turns, len(self.turns))
        return question

    def drop_oldest(self, turns: int) -> None:
        """Stop sending this many more of the oldest turns."""
        self.dropped_turns = min(self.dropped_turns + turns, len(self.turns))

    @property
    def last_reply(self) -> str | None:
        """The newest reply that has any text."""
        return next((turn.reply for turn in reversed(self.turns) if turn.reply), None)

    def prompt(self) -> Prompt:
        """What is to be sent now, as a snapshot another thread may read."""
        return Prompt(self.system, tuple(replace(turn) for turn in self.turns[self.dropped_turns :]))


@dataclass(frozen=True, slots=True)
class Prompt:
    """The system prompt and the turns to send, oldest first; the newest has no reply yet."""

    system: str
    turns: tuple[Turn, ...]

    def messages(self, first_turn: int = 0) -> list[dict[str, str]]:
        """Role and content for the chat template, without the turns before ``first_turn``.

        Thoughts go along as "reasoning_content": whether the model sees them again is its template's affair.
        A turn that was stopped before its first token keeps an empty reply: templates expect
        user and assistant to alternate.
        """
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[first_turn:]:
            messages.append({"role": "user", "content": turn.question})
            if turn.reply is not None:
                thoughts = {"reasoning_content": turn.thoughts} if turn.thoughts else {}
                messages.append({"role": "assistant", "content": turn.reply, **thoughts})
        return messages
