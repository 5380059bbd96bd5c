"""The motor is that of gym-electric-motor, exactly integrated; its reference is no reading."""

import gymnasium
import numpy as np
import pytest

from kalmanac._envs.motor import SERVO, SLOPE, Motor, discretized, exponential
from kalmanac._envs.registry import make_env
from kalmanac._envs.sensors import Corruption, ObservationDropout

BAD = Corruption(noise=0.05, delay=2, dropout=0.5, dropout_burst=8.0)


def test_the_exponential_of_a_matrix():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    np.testing.assert_allclose(exponential(np.pi / 2 * turn), turn, atol=1e-14)
    np.testing.assert_allclose(exponential(np.diag([-5.0, 3.0])), np.diag(np.exp([-5.0, 3.0])))
    np.testing.assert_array_equal(exponential(np.zeros((2, 2))), np.eye(2))


def test_a_step_is_a_thousand_small_ones():
    step, fine = (
        discretized(SERVO, 0.5),
        discretized(SERVO._replace(period=SERVO.period / 1000), 0.5),
    )
    a, b, q = np.eye(3), np.zeros(3), np.zeros((3, 3))
    for _ in range(1000):
        a, b, q = fine.a @ a, fine.a @ b + fine.b, fine.a @ q @ fine.a.T + fine.q
    np.testing.assert_allclose(step.a, a, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(step.b, b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(step.q, q, rtol=1e-6, atol=1e-15)


def test_the_load_keeps_its_spread():
    env = Motor(load=0.5, horizon=50)
    loads = []
    for seed in range(150):
        env.reset(seed=seed)
        *_, info = [env.step([0.0]) for _ in range(50)][-1]
        loads.append(info["privileged"][2])
    assert abs(np.std(loads) - 0.5) < 0.09


def test_a_constant_voltage_ends_in_the_speed_of_the_books():
    env = Motor(load=0.0, horizon=2000)
    env.reset(seed=0)
    for _ in range(1000):
        (current, speed, _), *_ = env.step([0.5])
    r, psi, b = SERVO.resistance, SERVO.flux, SERVO.friction
    expected = 30.0 * psi / (psi**2 + r * b)
    assert speed * SERVO.speed == pytest.approx(expected, rel=1e-5)
    assert current * SERVO.current == pytest.approx(b * expected / psi, rel=1e-3)


def test_rewards_are_for_speed_and_current():
    env = Motor(load=0.0)
    env.reset(seed=0)
    for duty in (0.2, 1.0, 1.0, 1.0):
        before = env._reference
        (current, speed, after), reward, *_ = env.step([duty])
        excess = max(0.0, abs(float(current)) - 1)
        assert reward == pytest.approx(-10 * abs(float(speed) - before) - excess, abs=1e-5)
        assert abs(after - before) <= SLOPE + 1e-6
    assert excess > 0  # full voltage at low speed is too much current
    (again, *_), *_ = env.step([99.0])  # the supply has no more than its voltage
    assert np.isfinite(again)


def test_the_reference_is_neither_noisy_nor_late_nor_missing():
    for corruption in (Corruption(noise=0.3), Corruption(delay=5), BAD):
        env, truth = make_env("motor", corruption=corruption), Motor()
        (seen, info), (whole, _) = env.reset(seed=3), truth.reset(seed=3)
        missing, differs = 0, 0
        for _ in range(150):
            assert seen[2] == whole[2]
            differs += bool((seen[:2] != whole[:2]).all())
            if not info.get("observed", True):
                missing += 1
                assert (seen[:2] == 0).all()
            action = [0.3]
            seen, reward, *_, info = env.step(action)
            whole, reward_too, *_ = truth.step(action)
            assert reward == reward_too
        assert differs > 100
        assert (missing > 30) == (corruption.dropout > 0)


def test_a_flag_ends_the_observation():
    told = Corruption(noise=0.05, dropout=0.5, dropout_burst=8.0, dropout_flag=True)
    env = make_env("motor", corruption=told)
    observation, info = env.reset(seed=0)
    assert env.observation_space.shape == (4,)
    seen = set()
    for _ in range(60):
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        assert observation[3] == info["observed"]
        seen.add(bool(info["observed"]))
        observation, *_, info = env.step([0.0])
    assert seen == {True, False}
    with pytest.raises(ValueError, match="dropout_flag: got True, expected False where dropout_to"):
        Corruption(dropout=0.5, dropout_told=False, dropout_flag=True)
    picture = gymnasium.wrappers.ReshapeObservation(make_env("motor"), (3, 1))
    with pytest.raises(TypeError, match="expected one axis for a flag"):
        ObservationDropout(picture, 0.5, flag=True)


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="load: got -1, expected a number of at least 0"):
        Motor(load=-1)
    with pytest.raises(ValueError, match="horizon: got 0, expected an integer of at least 1"):
        Motor(horizon=0)
    env = Motor()
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.step([0.0])
    env.reset(seed=0)
    for bad in ([np.nan], [0.0, 1.0], 0.0):
        with pytest.raises(ValueError, match="expected one finite number"):
            env.step(bad)


@pytest.mark.filterwarnings("ignore")
def test_every_step_is_that_of_gym_electric_motor():
    pytest.importorskip("gym_electric_motor")
    env, _ = gem_environment()
    env.reset(seed=0)
    system = env.get_wrapper_attr("physical_system")
    current, speed = (list(system.state_names).index(name) for name in ("i", "omega"))
    step, x, rng = discretized(SERVO, 0.0), np.zeros(3), np.random.default_rng(0)
    for _ in range(20):
        duty = rng.uniform(-1, 1, 1)
        (state, _), *_ = env.step(duty)
        x = step.a @ x + step.b * (SERVO.voltage * duty[0])
        theirs = state[[current, speed]] * system.limits[[current, speed]]
        np.testing.assert_allclose(theirs, x[:2], rtol=1e-6, atol=1e-6)


def gem_environment():
    """Their environment of our motor, and its id."""
    import gym_electric_motor as gem
    from gym_electric_motor.physical_systems import mechanical_loads, solvers

    name = "Cont-SC-PermExDc-v0"
    motor = {
        "motor_parameter": {
            "r_a": SERVO.resistance, "l_a": SERVO.inductance, "psi_e": SERVO.flux,
            "j_rotor": 0.8 * SERVO.inertia,
        },
        "nominal_values": {"omega": SERVO.speed, "i": SERVO.current, "u": SERVO.voltage},
        "limit_values": {"omega": 2 * SERVO.speed, "i": 5 * SERVO.current, "u": SERVO.voltage},
    }  # fmt: skip
    load = {"a": 0.0, "b": SERVO.friction, "c": 0.0, "j_load": 0.2 * SERVO.inertia}
    env = gem.make(
        name, motor=motor, load=mechanical_loads.PolynomialStaticLoad(load_parameter=load),
        tau=SERVO.period, supply={"u_nominal": SERVO.voltage}, constraints=(),
        ode_solver=solvers.ScipyOdeSolver("dopri5", rtol=1e-8, atol=1e-8),
    )  # fmt: skip
    return env, name
