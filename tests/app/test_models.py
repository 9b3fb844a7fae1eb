"""Models that visitors may choose, and nothing else."""

from pathlib import Path

import pytest
from tiny_checkpoint import copy_checkpoint, put_into_cache, save_checkpoint

from hf_lrp.app.models import EMBEDDED, Models
from hf_lrp.models.loading import CheckpointError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("secret-place") / "cats")


def test_folders_are_called_by_their_names(checkpoint: Path, tmp_path: Path) -> None:
    other = copy_checkpoint(checkpoint, tmp_path / "cats")
    models = Models([None, str(checkpoint), str(other), str(checkpoint), "owner/name"])
    assert models.labels == [EMBEDDED, "cats", "cats (2)", "owner/name"]
    assert models.get("cats").model.config.name_or_path == "cats"


def test_what_was_used_last_stays_in_memory(checkpoint: Path) -> None:
    models = Models([str(checkpoint), None], kept=1)
    first = models.get("cats")
    assert models.get(" cats ").model is first.model and models.in_memory == ["cats"]
    models.get(EMBEDDED)
    assert models.in_memory == [EMBEDDED]


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("shape", ["{0}", "{0}/", "./{1}", "{1}", "../x/{1}", "~/{1}", "nested/cats", "None"])
def test_no_other_folder_can_be_read(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: bool, shape: str
) -> None:
    copy_checkpoint(checkpoint, tmp_path / "cats")
    copy_checkpoint(checkpoint, tmp_path / "nested" / "cats")  # looks like a Hub id from the folder above
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    models = Models([None], hub=hub)
    with pytest.raises(ValueError, match="is not offered here. Choose one of: embedded English-French"):
        models.get(shape.format(tmp_path / "cats", "cats"))
    assert models.in_memory == []


def test_a_choice_that_was_emptied_is_asked_for() -> None:
    with pytest.raises(ValueError, match="No model is chosen. Choose one of: embedded English-French"):
        Models([None]).get(" ")


def test_models_of_the_hub_only_where_they_are_allowed(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_into_cache(checkpoint, tmp_path, "owner/cats")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert Models([None], hub=True).get("owner/cats").model.config.model_type == "marian"
    assert Models(["owner/cats"]).get("owner/cats").model.config.model_type == "marian"
    with pytest.raises(ValueError, match="is not offered here"):
        Models([None]).get("owner/cats")


def test_why_a_model_cannot_be_loaded_is_said_on_the_terminal(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = copy_checkpoint(checkpoint, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged cannot be loaded") as caught:
        Models([str(damaged)]).get("damaged")
    assert str(tmp_path) not in str(caught.value) and str(tmp_path) in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="its weights are damaged"):  # on a machine of one's own
        Models([str(damaged)], hub=True).get("damaged")


def test_languages_of_one_visitor_are_not_those_of_the_next(checkpoint: Path) -> None:
    models = Models([str(checkpoint)])
    with pytest.raises(ValueError, match="cats has no languages to choose from"), models.use("cats", "eng_Latn"):
        pass
    with models.use("cats") as (_, first), models.use("cats") as (_, second):
        assert first is not second  # at the same time
        first.src_lang = "eng_Latn"  # as if it had some, and a visitor had chosen one
        assert getattr(second, "src_lang", None) is None
    with models.use("cats") as (_, one), models.use("cats") as (_, other):
        assert {id(one), id(other)} == {id(first), id(second)}  # copies are kept
        assert getattr(one, "src_lang", None) is None and getattr(other, "src_lang", None) is None


def test_an_app_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        Models([])
