"""What `omniloom fetch` knows by name: one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_OPENAI = "https://openaipublic.azureedge.net/clip/models"
_COCO = "http://images.cocodataset.org"
_KARPATHY = "https://storage.googleapis.com/sfr-vision-language-research/datasets"

# Of a model's repository only one copy of the weights is wanted, and nothing that runs.
MODEL_FILES = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "LICENSE*", "*.md")
NOT_MODEL_FILES = ("consolidated*", "original/*", "onnx/*", "*.gguf", "*/*")


class Download(NamedTuple):
    """One file at an address.

    Attributes:
        url: where it is.
        path: where it goes within the destination.
        sha256: its checksum, where its publisher says it.
    """

    url: str
    path: str
    sha256: str | None = None


class Item(NamedTuple):
    """One name.

    Attributes:
        summary: what it is, in a line.
        group: under what heading it is listed.
        repository: ``owner/name`` on the hub; empty where files are listed.
        kind: of the repository.
        wanted: patterns of its files; empty takes all.
        unwanted: patterns of files that are left out all the same.
        files: addresses, where it is not a repository.
        room_bytes: disk that it takes until it is usable, where that is more than its files.
    """

    summary: str
    group: str
    repository: str = ""
    kind: str = "models"
    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    files: tuple[Download, ...] = ()
    room_bytes: int = 0


def _model(repository: str, summary: str, *, group: str = "language models", bin_files: bool = False) -> Item:
    wanted = (*MODEL_FILES, "*.bin") if bin_files else MODEL_FILES
    return Item(summary, group, repository, wanted=wanted, unwanted=NOT_MODEL_FILES)


def _tower(repository: str, summary: str) -> Item:
    return _model(repository, summary, group="vision towers")


def _openai(file: str, sha256: str, summary: str) -> Item:
    return Item(summary, "vision towers", files=(Download(f"{_OPENAI}/{sha256}/{file}", file, sha256),))


def _benchmark(repository: str, summary: str, *wanted: str) -> Item:
    """Tables of a benchmark, of the split that is scored where several are there."""
    return Item(summary, "benchmarks", repository, kind="datasets", wanted=(*(wanted or ("*.parquet",)), "*.md"))


ITEMS: Mapping[str, Item] = {
    "mistral-7b-v0.3": _model("mistralai/Mistral-7B-v0.3", "the language model of Megatron's guide"),
    "mistral-7b-instruct-v0.3": _model("mistralai/Mistral-7B-Instruct-v0.3", "the same, instruction-tuned"),
    "mistral-7b-instruct-v0.2": _model("mistralai/Mistral-7B-Instruct-v0.2", "its forerunner, of LLaVA 1.6"),
    "llama-2-7b": _model("meta-llama/Llama-2-7b-hf", "Llama 2 7B; needs HF_TOKEN"),
    "llama-3.1-8b-instruct": _model("meta-llama/Llama-3.1-8B-Instruct", "Llama 3.1 8B; needs HF_TOKEN"),
    "llama-3.2-1b": _model("meta-llama/Llama-3.2-1B", "Llama 3.2 1B; needs HF_TOKEN"),
    "vicuna-7b-v1.5": _model("lmsys/vicuna-7b-v1.5", "the language model of LLaVA 1.5 7B", bin_files=True),
    "vicuna-13b-v1.5": _model("lmsys/vicuna-13b-v1.5", "the language model of LLaVA 1.5 13B", bin_files=True),
    "yi-34b": _model("NousResearch/Nous-Hermes-2-Yi-34B", "the language model of NVLM 34B"),
    "qwen2.5-7b-instruct": _model("Qwen/Qwen2.5-7B-Instruct", "Qwen 2.5 7B"),
    "qwen2.5-0.5b-instruct": _model("Qwen/Qwen2.5-0.5B-Instruct", "Qwen 2.5 0.5B"),
    "qwen3-8b": _model("Qwen/Qwen3-8B", "Qwen 3 8B"),
    "smollm2-135m-instruct": _model("HuggingFaceTB/SmolLM2-135M-Instruct", "SmolLM2 135M"),
    "smollm2-1.7b-instruct": _model("HuggingFaceTB/SmolLM2-1.7B-Instruct", "SmolLM2 1.7B"),
    "clip-vit-large-patch14-336": _tower("openai/clip-vit-large-patch14-336", "the tower of LLaVA 1.5"),
    "clip-vit-base-patch16": _tower("openai/clip-vit-base-patch16", "a small CLIP"),
    "siglip-so400m-patch14-384": _tower("google/siglip-so400m-patch14-384", "SigLIP"),
    "siglip2-so400m-patch14-384": _tower("google/siglip2-so400m-patch14-384", "SigLIP 2"),
    "internvit-300m": _tower("OpenGVLab/InternViT-300M-448px-V2_5", "InternViT 300M"),
    "internvit-6b": _tower("OpenGVLab/InternViT-6B-448px-V1-5", "InternViT 6B, the tower of NVLM"),
    "c-radio-h": _tower("nvidia/C-RADIOv2-H", "C-RADIO v2 H"),
    "dinov2-small": _tower("facebook/dinov2-small", "DINOv2 small"),
    "openai-clip-b16": _openai(
        "ViT-B-16.pt", "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f", "OpenAI's archive of B/16"
    ),
    "openai-clip-l14": _openai(
        "ViT-L-14.pt", "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836", "OpenAI's archive of L/14"
    ),
    "openai-clip-l14-336": _openai(
        "ViT-L-14-336px.pt",
        "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02",
        "OpenAI's archive of L/14@336, the tower of Megatron's guide",
    ),
    "llava-1.5-7b": _model("llava-hf/llava-1.5-7b-hf", "LLaVA 1.5 7B, trained", group="whole models"),
    "llava-pretrain": Item(
        "558 k captioned images, LLaVA's first stage",
        "data sets",
        "liuhaotian/LLaVA-Pretrain",
        kind="datasets",
        wanted=("*.json", "*.zip", "*.md"),
        room_bytes=79_000_000_000,
    ),
    "llava-instruct": Item(
        "665 k conversations, LLaVA's second stage; their images are elsewhere",
        "data sets",
        "liuhaotian/LLaVA-Instruct-150K",
        kind="datasets",
        wanted=("llava_v1_5_mix665k.json", "*.md"),
    ),
    "mmmu": _benchmark("MMMU/MMMU", "MMMU, all subjects"),
    "mmmu-pro": _benchmark("MMMU/MMMU_Pro", "MMMU-Pro, ten and four options, and as images"),
    "vqav2": _benchmark("lmms-lab-encoder/VQAv2", "VQA v2", "data/validation-*.parquet"),
    "ok-vqa": _benchmark("lmms-lab-encoder/OK-VQA", "OK-VQA"),
    "textvqa": _benchmark("lmms-lab-encoder/textvqa", "TextVQA", "data/validation-*.parquet"),
    "chartqa": _benchmark("lmms-lab-encoder/ChartQA", "ChartQA"),
    "docvqa": _benchmark("lmms-lab-encoder/DocVQA", "DocVQA", "DocVQA/validation-*.parquet"),
    "infovqa": _benchmark("lmms-lab-encoder/DocVQA", "InfographicVQA", "InfographicVQA/validation-*.parquet"),
    "ai2d": _benchmark("lmms-lab-encoder/ai2d", "AI2D"),
    "ocrbench": _benchmark("echo840/OCRBench", "OCRBench"),
    "ocrbench-v2": _benchmark("ling99/OCRBench_v2", "OCRBench v2"),
    "mathvista": _benchmark("AI4Math/MathVista", "MathVista", "data/testmini-*.parquet"),
    "nocaps": _benchmark("lmms-lab-encoder/NoCaps", "NoCaps", "data/validation-*.parquet"),
    "flickr30k": _benchmark("lmms-lab-encoder/flickr30k", "Flickr30k"),
    "realworldqa": _benchmark("lmms-lab-encoder/RealWorldQA", "RealWorldQA"),
    "scienceqa": _benchmark("lmms-lab-encoder/ScienceQA", "ScienceQA", "ScienceQA-FULL/test-*.parquet"),
    "pope": _benchmark("lmms-lab-encoder/POPE", "POPE", "data/test-*.parquet"),
    "mme": _benchmark("lmms-lab-encoder/MME", "MME"),
    "mvbench-questions": _benchmark("OpenGVLab/MVBench", "MVBench, its questions without videos", "json/*.json"),
    "coco-val2014": Item(
        "COCO's val2014 images, of which Karpathy's test images are a part",
        "benchmarks",
        files=(Download(f"{_COCO}/zips/val2014.zip", "val2014.zip"),),
        room_bytes=13_500_000_000,
    ),
    "coco-train2014": Item(
        "COCO's train2014 images",
        "data sets",
        files=(Download(f"{_COCO}/zips/train2014.zip", "train2014.zip"),),
        room_bytes=28_000_000_000,
    ),
    "coco-annotations-2014": Item(
        "COCO's captions and boxes of 2014",
        "benchmarks",
        files=(Download(f"{_COCO}/annotations/annotations_trainval2014.zip", "annotations_trainval2014.zip"),),
    ),
    "karpathy": Item(
        "Karpathy's split of COCO captions: images, captions, and references as COCO writes them",
        "benchmarks",
        files=tuple(
            Download(f"{_KARPATHY}/{file}", file)
            for part in ("val", "test")
            for file in (f"coco_karpathy_{part}.json", f"coco_karpathy_{part}_gt.json")
        ),
    ),
}
# The names that OpenAI's own package has for its models.
ALIASES: Mapping[str, str] = {
    "ViT-B/16": "openai-clip-b16",
    "ViT-L/14": "openai-clip-l14",
    "ViT-L/14@336px": "openai-clip-l14-336",
}
