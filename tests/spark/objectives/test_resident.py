"""Tasks that stay: the same numbers as by jobs, through lost tasks, and slots that come free."""

from __future__ import annotations

import functools
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from distvec.losses.classification import Logistic
from distvec.spark import LogisticLoss, PSContext
from distvec.spark.data.build import Descriptor
from distvec.spark.jobs.application import free_slots
from distvec.spark.objectives.evaluation_task import LossSpec, TaskSpec, serve
from optim import LBFGS
from ps_backend.errors import BufferLost
from tests.spark.test_faults import said, script
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.spark


@pytest.fixture
def losses(ps, problem):
    """The same objective by jobs and by resident tasks, which hold all slots once they run."""
    options = {"weight": "weight", "l2": 0.3, "intercept": True, "ps": ps}
    with (
        LogisticLoss(problem.frame, **options) as by_jobs,
        LogisticLoss(problem.frame, mode="resident", **options) as resident,
    ):
        yield by_jobs, resident


@pytest.fixture
def loss(ps, problem):
    with LogisticLoss(problem.frame, mode="resident", ps=ps) as loss:
        yield loss


def bits(result):
    value, gradient = result
    return float(value), gradient.numpy().tobytes()


def test_both_modes_give_the_same_bits(losses, ps):
    by_jobs, resident = losses
    rng = np.random.default_rng(7)
    points = [ps.array(rng.normal(size=by_jobs.dimension).astype(kind)) for kind in "dfd"]
    expected = [bits(by_jobs(w)) for w in points] + [bits(by_jobs.with_l2(0.0)(points[0]))]
    found = [bits(resident(w)) for w in points] + [bits(resident.with_l2(0.0)(points[0]))]
    assert found == expected


def test_a_solver_ends_at_the_same_point(losses, ps):
    solver = LBFGS(gradient_tolerance=1e-6, max_iterations=100)
    by_jobs, resident = (solver.minimize(loss, ps.zeros(loss.dimension)) for loss in losses)
    assert by_jobs.success
    assert (resident.nit, resident.nfev) == (by_jobs.nit, by_jobs.nfev)
    assert resident.fun == by_jobs.fun
    assert resident.x.numpy().tobytes() == by_jobs.x.numpy().tobytes()


def test_an_evaluation_costs_the_driver_few_messages_and_no_vector(loss, ps):
    w = ps.zeros(loss.dimension).persist()
    loss(w)
    ps.counters.reset()
    loss(w)
    cost = ps.counters.snapshot()
    assert cost["messages"] == 1  # the question, and all that follows from it
    assert cost["bytes_received"] < 1000
    assert cost["bytes_sent"] < 1500


def test_closing_frees_the_slots(loss, ps, spark):
    before = free_slots(spark.sparkContext)
    loss(ps.zeros(loss.dimension))
    assert (before, free_slots(spark.sparkContext)) == (2, 0)
    loss.close()
    assert free_slots(spark.sparkContext) == 2
    assert spark.range(10).count() == 10
    with pytest.raises(ValueError, match="the data was closed; make a new objective"):
        loss(ps.zeros(loss.dimension))


def test_idle_tasks_make_way_for_other_jobs_and_come_back(loss, ps, spark, monkeypatch):
    monkeypatch.setattr("distvec.spark.objectives.evaluator._IDLE_SECONDS", 0.3)
    w = ps.ones(loss.dimension)
    first = bits(loss(w))
    assert spark.range(10).count() == 10  # waits until the tasks have ended
    assert free_slots(spark.sparkContext) == 2
    assert bits(loss(w)) == first


def test_errors_of_tasks_arrive_as_their_class(loss, ps):
    w = ps.ones(loss.dimension)
    first = bits(loss(w))
    lost = ps.ones(loss.dimension).persist() * 2.0
    lost.persist()
    ps.client.free([lost.buffer_id])
    with pytest.raises(BufferLost, match="in the task of partition 0: "):
        loss(lost)
    assert bits(loss(w)) == first


def test_a_task_that_fails_ends_the_evaluation_and_not_the_loss(loss, ps):
    w = ps.ones(loss.dimension)
    (path, *_) = loss.data.run(lambda rows: [Descriptor(*row).path for row in rows])
    labels = Path(path, "labels.npy")
    content = labels.read_bytes()
    labels.write_bytes(b"garbage")
    with pytest.raises(RuntimeError, match=r"a Spark job failed: .*pickle"):
        loss(w)
    labels.write_bytes(content)
    assert np.isfinite(float(loss(w)[0]))


def test_blocks_that_vanished_are_built_again(loss, ps):
    w = ps.ones(loss.dimension)
    first = bits(loss(w))
    loss._evaluator.standing_tasks.close()
    for path in loss.data.run(lambda rows: [Descriptor(*row).path for row in rows]):
        shutil.rmtree(path)
    loss.data.run(_forget_blocks)
    assert bits(loss(w)) == first


def test_lost_partitions_are_built_again_by_tasks_that_serve_several(loss, ps):
    w = ps.ones(loss.dimension)
    first = bits(loss(w))
    assert loss._evaluator.standing_tasks._job.tasks < loss.data.filled
    loss._evaluator.standing_tasks.close()
    loss.data._rdd.unpersist(blocking=True).persist()
    assert bits(loss(w)) == first


def test_a_task_without_all_of_its_partitions_does_not_stay(loss, ps, spark):
    known = loss.data.run(list)
    serve_two = functools.partial(
        serve, TaskSpec(ps.access, "a topic", [[0, 1, 2]], LossSpec(Logistic(), False))
    )
    with pytest.raises(Exception, match=r"got the partitions \[0, 1\] of \[0, 1, 2\]: its input"):
        spark.sparkContext.parallelize(known[:2], 1).mapPartitions(serve_two).collect()


def _forget_blocks(rows):
    from distvec.spark.objectives.evaluation_task import LoadedPartitions
    from distvec.spark.task_session import singleton

    singleton(LoadedPartitions).clear()
    return list(rows)


def test_without_a_free_slot_it_says_so_in_time(loss, ps, held_slots, monkeypatch):
    with held_slots(), monkeypatch.context() as patch:
        patch.setattr("distvec.spark.objectives.evaluator._START_SECONDS", 0.2)
        with pytest.raises(RuntimeError, match=r"needs 1 free slots .* 0 of them .*; end other"):
            loss(ps.ones(loss.dimension))
    assert np.isfinite(float(loss(ps.ones(loss.dimension))[0]))


def test_an_unknown_mode(problem, ps):
    with pytest.raises(ValueError, match="mode='stay'; allowed are 'job', 'resident'"):
        LogisticLoss(problem.frame, mode="stay", ps=ps)


def test_the_tasks_end_with_the_context(spark, problem):
    with PSContext.get_or_create(spark) as ps:
        loss = LogisticLoss(problem.frame, mode="resident", ps=ps)
        loss(ps.ones(loss.dimension))
        job = loss._evaluator.standing_tasks._job
    wait_for(lambda: not job.is_alive)
    wait_for(lambda: free_slots(spark.sparkContext) == 2)  # Spark ends cancelled tasks by itself
    loss.close()


START = """
import os, signal, tempfile, threading
import distvec.spark.objectives.evaluator as resident
import distvec.spark.objectives.evaluation_task as module
from distvec.spark.jobs.application import free_slots
from optim import SGD

rng = np.random.default_rng(0)
rows = [(Vectors.dense(rng.normal(size=2000)), float(k % 2)) for k in range(12)]
frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), ["features", "label"])
w = ps.array(rng.normal(size=2000))
bits = lambda result: (float(result[0]), result[1].numpy().tobytes())
first = bits(LogisticLoss(frame, l2=0.1)(w))
loss = LogisticLoss(frame, l2=0.1, mode="resident")
"""

KILLED = """
from ps_backend.client.barriers import Mailbox
answer = Mailbox.answer

def answer_first_server(self, *args):
    send = self._send
    self._send = lambda messages, recorded: send({0: messages[0]}, recorded=recorded)
    answer(self, *args)

died, lives = tempfile.mkdtemp(), tempfile.mkdtemp()

def die_once(orders, rows):
    import distvec.spark.objectives.evaluation_task as module
    evaluate_partition, attempt = module.evaluate_partition, TaskContext.get().attemptNumber()
    open(f"{died if attempt == 0 else lives}/{os.getpid()}", "w").close()

    def answered_and_killed(client, work, request, descriptor, *args):
        if attempt == 0 and descriptor.partition:
            Mailbox.answer = answer_first_server
        result = evaluate_partition(client, work, request, descriptor, *args)
        if attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    module.evaluate_partition = answered_and_killed
    try:
        return list(module.serve(orders, rows))
    finally:
        module.evaluate_partition = evaluate_partition

resident.serve = die_once
say([bits(loss(w)) == first, bits(loss(w)) == first])
say([len(os.listdir(died)), len(os.listdir(lives))])
resident.serve = module.serve
"""

STAGED = """
from distvec.losses import Cox, FactorizationMachine
from distvec.spark import Objective

loss._evaluator.standing_tasks.close()
deaths = tempfile.mkdtemp()

def die_when_told(orders, rows):
    import distvec.spark.objectives.evaluation_task as module
    evaluate_partition, attempt = module.evaluate_partition, TaskContext.get().attemptNumber()

    def told_and_killed(*args):
        result = evaluate_partition(*args)  # it has staged, and answered
        if attempt == 0:
            open(tempfile.mkstemp(dir=deaths)[1]).close()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    module.evaluate_partition = told_and_killed
    try:
        return list(module.serve(orders, rows))
    finally:
        module.evaluate_partition = evaluate_partition

def all_bits(result):
    arrays = result[1].values() if isinstance(result[1], dict) else [result[1]]
    return float(result[0]), [array.numpy().tobytes() for array in arrays]

def survives(loss, rows):
    with Objective(rows, loss=loss, mode="job") as objective:
        x = objective.start()
        first = all_bits(objective(x))
    resident.serve = die_when_told
    with Objective(rows, loss=loss) as objective:
        killed = all_bits(objective(x))
        resident.serve = module.serve
        return [killed == first, all_bits(objective(x)) == first]

say([survives(FactorizationMachine(2), frame), len(os.listdir(deaths))])
say([survives(Cox(), frame.selectExpr("features", "label + 1 AS label")), len(os.listdir(deaths))])
"""

KILLED_OFTEN = """
deaths = tempfile.mkdtemp()
loss._evaluator.standing_tasks.close()

def die_often(orders, rows):
    import distvec.spark.objectives.evaluation_task as module
    if TaskContext.get().partitionId() == 0 and len(os.listdir(deaths)) < 5:  # maxFailures is 4
        open(tempfile.mkstemp(dir=deaths)[1]).close()
        os.kill(os.getpid(), signal.SIGKILL)
    return module.serve(orders, rows)

resident.serve = die_often
say([bits(loss(w)) == first, len(os.listdir(deaths))])
resident.serve = module.serve
loss._evaluator.standing_tasks.close()
"""

SLOT_LOST = """
gate = tempfile.mktemp()
os.mkfifo(gate)
hold = lambda _: open(gate).close()
queue = lambda: spark.sparkContext.parallelize([0], 1).foreach(hold)
other = threading.Thread(target=queue)
other.start()
while len(spark.sparkContext.statusTracker().getActiveJobsIds()) < 2:
    pass
stall, resident._STALL_SECONDS = resident._STALL_SECONDS, 0.5
same, tries = True, 0
residents = loss._evaluator.standing_tasks
while residents._job.tasks == 2 and tries < 3:  # the slot may go to the task's next attempt
    tries += 1
    alive = [pid for pid in os.listdir(lives) if os.path.exists(f"/proc/{pid}")]
    os.kill(int(alive[-1]), signal.SIGKILL)
    same &= bits(loss(w)) == first
say([same, loss._evaluator.standing_tasks._job.tasks])
resident._STALL_SECONDS = stall
open(gate, "w").close()
other.join()
loss._evaluator.standing_tasks.close()
"""

INTERRUPTED = """
try:
    begun = lambda state: say("begun") if state.iteration == 2 else None
    SGD(step_size=1e-9, max_iterations=10**6).minimize(loss, w, callback=begun)
except KeyboardInterrupt:
    say(bits(loss(w)) == first)
loss.close()
say(free_slots(spark.sparkContext))
"""

STOPPED = """
with LogisticLoss(frame, l2=0.1, mode="resident") as loss:
    loss(w)
    spark.stop()
say("stopped")
"""


def test_killed_tasks_lost_slots_ctrl_c_and_a_spark_that_stops(driver):
    body = START + KILLED + SLOT_LOST + INTERRUPTED + STOPPED
    process = driver(script(body, "local[2,4]"))
    assert said(process) == [True, True]
    assert said(process) == [2, 2], "each died once; one had told all servers, one only one"
    assert said(process) == [True, 1], "the other job has one slot, and the tasks are one"
    assert said(process) == "begun"
    os.killpg(process.pid, signal.SIGINT)
    assert said(process) is True
    assert said(process) == 2
    assert said(process) == "stopped"
    assert process.wait(PATIENCE) == 0, process.stderr.read()


@pytest.mark.long
def test_tasks_killed_after_they_staged_and_tasks_killed_often(driver):
    process = driver(script(START + STAGED + KILLED_OFTEN, "local[2,4]"))
    assert said(process) == [[True, True], 2], "gradients of several arrays, in a round"
    assert said(process) == [[True, True], 4], "in the first phase of a loss that has some"
    assert said(process) == [True, 5], "the job was started again"
    assert process.wait(PATIENCE) == 0, process.stderr.read()
