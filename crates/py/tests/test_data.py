"""`paddlecloud.data.RecordDataset`: shares, order, and going on at the record."""

import itertools
import pickle

import pytest
import recordio
from paddlecloud.data import RecordDataset

COUNT = 500
RECORDS = [b"%03d" % i for i in range(COUNT)]


@pytest.fixture
def files(write_records):
    """Three files, one of them empty; pieces of 256 KiB would be whole files, so records are padded."""
    records = [record + b"." * 20_000 for record in RECORDS]
    parts = [write_records(records[:300], "a", compressor="none"), write_records([], "b")]
    return parts + [write_records(records[300:], "c", compressor="none")]


def name(record):
    return record[:3]


def dataset(files, **options):
    return RecordDataset(files, **{"decode": name, "rank": 0, "world_size": 1, **options})


def test_without_shuffling_records_come_in_order(files):
    assert list(dataset(files)) == RECORDS


def test_without_a_decoder_records_are_bytes(files):
    assert next(iter(RecordDataset(files)))[:5] == b"000.."


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 501])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_record_goes_to_one_trainer(files, world_size, shuffle):
    shares = [
        list(dataset(files, rank=rank, world_size=world_size, shuffle=shuffle, buffer_size=50))
        for rank in range(world_size)
    ]
    assert sorted(itertools.chain(*shares)) == RECORDS
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [len(dataset(files, rank=rank, world_size=world_size)) for rank in range(world_size)]


def test_equal_shares_drop_the_rest(files):
    shares = [list(dataset(files, rank=rank, world_size=7, equal_shares=True)) for rank in range(7)]
    assert [len(share) for share in shares] == [COUNT // 7] * 7
    assert len(set(itertools.chain(*shares))) == COUNT // 7 * 7


def test_an_epoch_has_its_order_and_another_one_another(files):
    data = dataset(files, shuffle=True, seed=3, buffer_size=100)
    first, second = list(data), list(data)
    assert first != second
    assert sorted(first) == sorted(second) == RECORDS
    assert data.epoch == 2
    data.set_epoch(0)
    assert list(data) == first
    assert list(dataset(files, shuffle=True, seed=3, buffer_size=100)) == first
    assert list(dataset(files, shuffle=True, seed=4, buffer_size=100)) != first


def test_shuffling_moves_chunks_and_mixes_records(files):
    by_chunk = list(dataset(files, shuffle=True, buffer_size=1))
    mixed = list(dataset(files, shuffle=True, buffer_size=100))
    neighbours = [sum(int(b) - int(a) == 1 for a, b in itertools.pairwise(order)) for order in (by_chunk, mixed)]
    assert by_chunk != RECORDS
    assert neighbours[0] > 400, "a buffer of one only moves whole pieces"
    assert neighbours[1] < 50


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 49, 50, 51, 149, 199, 249, 250])
def test_a_saved_state_resumes_at_the_record(files, shuffle, taken):
    options = {"shuffle": shuffle, "buffer_size": 50, "rank": 1, "world_size": 2, "seed": 9}
    whole = list(dataset(files, **options))
    data = dataset(files, **options)
    samples = iter(data)
    assert list(itertools.islice(samples, taken)) == whole[:taken]
    state = pickle.loads(pickle.dumps(data.state_dict()))
    resumed = dataset(files, **options)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[taken:]
    assert list(samples) == whole[taken:], "looking at the state changes nothing"
    assert list(resumed) == list(data), "the next epoch is a whole one and the same for both"


def test_a_state_between_epochs_starts_the_next(files):
    data = dataset(files, shuffle=True, buffer_size=50)
    list(data)
    resumed = dataset(files, shuffle=True, buffer_size=50)
    resumed.load_state_dict(data.state_dict())
    assert list(resumed) == list(data)


def test_a_restarted_pass_starts_at_the_first_record(files):
    data = dataset(files)
    assert next(iter(data)) == RECORDS[0]
    assert next(iter(data)) == RECORDS[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"world_size": 3}, "world_size was 2, now 3"),
        ({"rank": 0}, "rank was 1, now 0"),
        ({"seed": 1}, "seed was 0, now 1"),
        ({"shuffle": False}, "shuffle was True, now False"),
        ({"buffer_size": 7}, "buffer_size was 50, now 7"),
    ],
)
def test_a_state_of_another_order_is_refused(files, change, words):
    options = {"shuffle": True, "buffer_size": 50, "rank": 1, "world_size": 2}
    state = dataset(files, **options).state_dict()
    with pytest.raises(ValueError, match=words):
        dataset(files, **{**options, **change}).load_state_dict(state)


def test_a_state_for_the_same_records_in_other_chunks_is_refused_where_it_matters(files, tmp_path):
    again = str(tmp_path / "again")
    with recordio.writer(again, chunk_size=300_000) as out:
        for record in recordio.reader(files):
            out.write(record)
    state = dataset(files, shuffle=True, buffer_size=50).state_dict()
    with pytest.raises(ValueError, match="cannot resume.*chunks was"):
        dataset([again], shuffle=True, buffer_size=50).load_state_dict(state)
    dataset([again]).load_state_dict(dataset(files).state_dict())


def test_a_pickled_dataset_gives_the_same(files):
    data = dataset(files, shuffle=True, buffer_size=50)
    data.set_epoch(4)
    assert list(pickle.loads(pickle.dumps(data))) == list(data)


@pytest.mark.parametrize("shuffle", [False, True])
def test_skipped_damage_costs_its_records_only_also_after_resuming(files, shuffle):
    with open(files[0], "r+b") as file:
        file.seek(1_500_000)
        file.write(b"!")
    options = {"policy": "skip", "shuffle": shuffle, "buffer_size": 60}
    data = dataset(files, **options)
    whole = list(data)
    assert len(data.damage) == 1
    assert 400 < len(whole) < COUNT and len(set(whole)) == len(whole)
    data = dataset(files, **options)
    taken = list(itertools.islice(iter(data), 200))
    resumed = dataset(files, **options)
    resumed.load_state_dict(data.state_dict())
    assert taken + list(resumed) == whole


@pytest.mark.parametrize(
    "names",
    [
        ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
        ("RANK", "WORLD_SIZE"),
        ("PADDLE_INIT_TRAINER_ID", "PADDLE_INIT_NUM_GRADIENT_SERVERS"),
        ("TRAINER_ID", "TRAINERS"),
    ],
)
def test_rank_and_world_size_come_from_the_job(files, monkeypatch, names):
    for name_ in ["PADDLE_TRAINER_ID", "RANK", "PADDLE_INIT_TRAINER_ID", "TRAINER_ID"]:
        monkeypatch.delenv(name_, raising=False)
    monkeypatch.setenv(names[0], "1")
    monkeypatch.setenv(names[1], "2")
    assert list(RecordDataset(files, decode=name)) == RECORDS[250:]


def test_invalid_arguments_are_refused(files):
    with pytest.raises(TypeError, match="`rank` and `world_size` must be set together"):
        RecordDataset(files, rank=1)
    with pytest.raises(ValueError, match="rank 2 is not one of 2"):
        RecordDataset(files, rank=2, world_size=2)
    with pytest.raises(ValueError, match="buffer_size must be at least 1"):
        RecordDataset(files, buffer_size=0)
