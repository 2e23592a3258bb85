"""From a scenario file and its `--set` overrides to a resolved `Scenario`, or to everything that is wrong with them."""

import errno
import sys
from collections.abc import Sequence
from pathlib import Path as FilePath

from falsim.scenario.models import resolve_model
from falsim.scenario.overrides import apply_overrides, parse_overrides
from falsim.scenario.presets import inside_one_gpu, resolve_gpu, resolve_inter_node, resolve_intra_node
from falsim.scenario.report import Report
from falsim.scenario.rules import Draft, check_rules
from falsim.scenario.schema import Cluster, Measured, Parallelism, ParallelismFields, Scenario
from falsim.scenario.validation import validate
from falsim.scenario.wording import printable
from falsim.scenario.written import ClusterFields, ScenarioFile
from falsim.yaml_source import MAX_BYTES, Data, Problem, SourceError, compose_yaml


def load_scenario(source: str | FilePath, overrides: Sequence[str] = (), name: str | None = None) -> Scenario:
    """Read, validate and resolve a scenario.

    Args:
        source: a path, "-" for standard input, or the YAML text itself (a text that has a line break or starts with
            a brace).
        overrides: texts "path=value" as of `--set`; the value is YAML, and null takes a value out.
        name: what problems call the source; default: the path, `<stdin>` or `<text>`.

    Raises:
        SourceError: with every problem that could be found, each at its line or override.
    """
    text, called, folder = _read(source, name)
    document = compose_yaml(text, called)
    changes, problems = parse_overrides(overrides)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of fields"
        message = f"the scenario {what} (`falsim init` writes one to start from)"
        raise SourceError([*document.problems, *problems, Problem(called, 1, 1, "", message)])
    data = {key: _without_nulls(value) for key, value in document.data.items() if value is not None}
    problems += apply_overrides(data, changes)
    report = Report(document, data, {change.path: change.source for change in changes})
    report.problems += problems
    file = validate(data, report)
    return _resolve(file, folder, report)


def _resolve(file: ScenarioFile, folder: FilePath, report: Report) -> Scenario:
    """Replace presets and defaults, check the rules, and build the scenario."""
    cluster = file.cluster
    resolved = resolve_model(file.model, file.training.sequence_length, folder, report)
    gpu = resolve_gpu(cluster.gpu, report)
    intra_node = resolve_intra_node(cluster.intra_node, report) if cluster.intra_node is not None else None
    inter_node = (
        resolve_inter_node(cluster.inter_node, cluster.gpus_per_node, report)
        if cluster.inter_node is not None
        else None
    )
    model = resolved.model if resolved is not None else None
    parallelism = _with_data(file.parallelism, cluster)
    check_rules(Draft(cluster, parallelism, file.training, file.measured, model, gpu, intra_node), report)
    report.raise_if_any()
    assert resolved is not None
    assert gpu is not None
    return Scenario(
        name=" ".join(file.name.split()) if file.name is not None else printable(FilePath(report.document.name).stem),
        description=file.description,
        workload=file.workload,
        model=resolved.model,
        architectures=file.architectures,
        cluster=Cluster(
            gpu=gpu,
            gpus_per_node=cluster.gpus_per_node,
            nodes=cluster.nodes,
            intra_node=intra_node if intra_node is not None else inside_one_gpu(gpu),
            inter_node=inter_node,
        ),
        parallelism=parallelism,
        training=file.training,
        implementation=file.implementation,
        calibration="datasheet" if file.calibration == "none" else file.calibration,
        measured=Measured.model_validate(dict(file.measured)) if file.measured is not None else None,
        notes=resolved.notes + _without_effect(parallelism),
    )


def _with_data(fields: ParallelismFields, cluster: ClusterFields) -> Parallelism:
    """Fill in the data-parallel size that uses every GPU (1 when there is none: a rule reports that)."""
    rest = fields.tensor * fields.context * fields.pipeline
    left = cluster.gpus_per_node * cluster.nodes // rest
    data = fields.data if fields.data is not None else max(1, left)
    return Parallelism.model_construct(**{**dict(fields), "data": data})


def _without_effect(split: Parallelism) -> tuple[str, ...]:
    """Switches that are on and have nothing to act on."""
    notes = []
    if split.sequence and split.tensor == 1:
        notes.append("sequence parallelism needs tensor > 1; ignored")
    if split.zero and split.data * split.context == 1:
        notes.append(f"zero {split.zero} needs several replicas (data > 1); ignored")
    return tuple(notes)


def _read(source: str | FilePath, name: str | None) -> tuple[str, str, FilePath]:
    """The text, what problems call it, and the folder that relative paths in it start from."""
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return source, name or "<text>", FilePath()
    if source == "":
        message = "an empty file name (name a scenario file, or - for standard input)"
        raise SourceError([Problem(name or "''", None, None, "", message)])
    if source == "-":
        called, folder = name or "<stdin>", FilePath()
    else:
        called, folder = name or str(source), FilePath(source).parent
    try:
        if source == "-":
            if sys.stdin is None:
                raise OSError(errno.EBADF, "standard input is closed")
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(source, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceError([Problem(called, None, None, "", f"cannot read it: {reason}")]) from None
    try:
        return raw[: MAX_BYTES + 1].decode("utf-8-sig"), called, folder
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, col = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise SourceError([Problem(called, line, col, "", "not UTF-8 text (save it as UTF-8)")]) from None


def _without_nulls(value: Data) -> Data:
    """A copy that shares nothing with other aliases; a key without a value counts as left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_without_nulls(below) for below in value]
    return value
