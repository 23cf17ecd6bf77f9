"""Models of ours inside lmms-eval: ``python -m lmms_eval --model omniloom --model_args pretrained=FOLDER --tasks ...``.

lmms-eval finds this module by the entry point ``lmms_eval.models``. Nothing else imports it: lmms-eval is not ours to
depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest

from omniloom.errors import ConfigError
from omniloom.generate.batches import batches_by_tokens
from omniloom.generate.prompts import Prompt, answer_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.train.trained import open_trained
from omniloom.vlm.frames import video_frames

_DEFAULT_NEW_TOKENS = 128
_IMAGE_MARK = "<image>"


def manifests() -> list[ModelManifest]:
    """What lmms-eval is told of: ``omniloom``, a run's folder or one in Hugging Face's form."""
    return [ModelManifest(model_id="omniloom", simple_class_path=f"{__name__}.Omniloom", aliases=("hf-folder",))]


class Omniloom(lmms):  # type: ignore[misc]
    """A model of ours behind lmms-eval's interface.

    Args:
        pretrained: folder of a run (its newest checkpoint), or of a model in a published form.
        template: chat template; by default the run's, or ``vicuna_v1``.
        batch_size: prompts that are answered together at most.
        batch_tokens: of these, each as long as the longest with its longest answer.
        max_frames_num: of a video.
        device: taken and passed over: the accelerator of the process counts.
        others: lmms-eval's own settings, which change nothing here.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        template: str | None = None,
        batch_size: int | str = 16,
        batch_tokens: int | str = 65_536,
        max_frames_num: int | str = 8,
        device: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        del device, others
        self._trained = open_trained(Path(pretrained), template=template)
        self._batch_size, self._batch_tokens, self._frames = int(batch_size), int(batch_tokens), int(max_frames_num)

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """An answer to each request, in order; those with the same settings are answered together."""
        answers: dict[int, str] = {}
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(number)
        for numbers in groups.values():
            sampling = _sampling(requests[numbers[0]].args[1])
            for batch in batches_by_tokens(
                self._prompts(requests, numbers),
                tokens=lambda one: len(one[1].ids) + sampling.max_new_tokens,  # noqa: B023 - used at once
                budget_tokens=self._batch_tokens,
                most_rows=self._batch_size,
            ):
                made = answer_prompts(
                    self._trained.model,
                    self._trained.prompter,
                    [prompt for _, prompt in batch],
                    sampling=sampling,
                    keys=["/".join(map(str, requests[number].args[4:2:-1])) for number, _ in batch],
                )
                answers |= {number: answer.text for (number, _), answer in zip(batch, made, strict=True)}
        for number, request in enumerate(requests):
            self.cache_hook.add_partial("generate_until", request.args[:2], answers[number])
        return [answers[number] for number in range(len(requests))]

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Not there. Raises ConfigError."""
        raise ConfigError(
            f"{len(requests)} requests for likelihoods: models of ours only generate here. Choose a task of the kind "
            "`generate_until`."
        )

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Not there. Raises ConfigError."""
        raise ConfigError(f"{len(requests)} talks of several rounds: models of ours answer single questions here.")

    def _prompts(self, requests: Sequence[Any], numbers: Sequence[int]) -> Iterator[tuple[int, Prompt]]:
        for number in numbers:
            context, _, to_visual, document, task, split = requests[number].args
            question = context.replace(_IMAGE_MARK, "").strip()  # images stand before the question
            yield number, self._trained.prompter.prompt(question, list(self._shown(to_visual, task, split, document)))

    def _shown(self, to_visual: Any, task: str, split: str, document: int) -> Iterator[Any]:
        for visual in to_visual(self.task_dict[task][split][document]) or ():
            if not isinstance(visual, str):
                yield visual
                continue
            with Path(visual).open("rb") as file:
                yield video_frames(file, count=self._frames)


def _sampling(settings: Mapping[str, Any]) -> SamplingConfig:
    """What a task's settings ask for; words are drawn only where a temperature says so."""
    until = settings.get("until") or ()
    temperature = float(settings.get("temperature") or 0)
    draws = temperature > 0 and settings.get("do_sample") is not False
    share = settings.get("top_p") if draws else None
    return SamplingConfig(
        max_new_tokens=int(settings.get("max_new_tokens") or _DEFAULT_NEW_TOKENS),
        temperature=temperature if draws else 0.0,
        top_p=float(share) if share else None,
        stop=(until,) if isinstance(until, str) else tuple(text for text in until if text),
    )
