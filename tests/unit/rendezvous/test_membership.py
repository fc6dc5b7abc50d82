from tfdist.rendezvous.membership import Asked, Membership, Rules, decide

RULES = Rules(fewest=2, most=4, latecomer_limit_s=10.0, regroup_limit_s=5.0)


def asked(at=0.0, at_boundary=False, operation=0):
    return Asked("host:1", (operation,), at_boundary, at)


def with_all(*names, rules=RULES, at=0.0):
    state = Membership(rules)
    for name in names:
        state = state.enter(name).ask(name, asked(at))
    return state


def running(*names):
    state, verdict = decide(with_all(*names), 100.0)
    assert verdict.round.members == names
    return state


def test_the_first_round_is_formed_at_once_when_all_are_there():
    state, verdict = decide(with_all("a", "b", "c", "d"), 0.0)
    assert verdict.round.members == ("a", "b", "c", "d")
    assert verdict.round.number == 0
    assert state.asked == {}
    assert decide(state, 1000.0)[1].round is None


def test_the_first_round_waits_for_latecomers_up_to_the_limit():
    state = with_all("a", "b")
    assert decide(state, 9.9)[1].round is None
    assert decide(state, 10.0)[1].round.members == ("a", "b")


def test_too_few_at_the_start_is_a_failure_at_the_limit():
    state = with_all("a")
    assert not decide(state, 9.9)[1].failure
    assert "1 members came within 10 s, and the job needs at least 2" in decide(state, 10.0)[1].failure


def test_members_that_lost_one_form_a_round_without_it():
    state = running("a", "b", "c").leave("b").ask("a", asked(1.0))
    assert decide(state, 1.0)[1].round is None  # c has not noticed yet
    state, verdict = decide(state.ask("c", asked(1.1)), 1.1)
    assert verdict.round.members == ("a", "c")
    assert verdict.round.number == 1
    assert state.members == ("a", "c")


def test_one_that_leaves_while_the_others_wait_is_not_waited_for():
    state = running("a", "b", "c").ask("a", asked(1.0)).ask("b", asked(1.0)).leave("c")
    assert decide(state, 1.0)[1].round.members == ("a", "b")


def test_one_that_asked_and_left_is_out():
    state = running("a", "b", "c").ask("a", asked(1.0)).leave("a").ask("b", asked(1.0)).ask("c", asked(1.0))
    assert decide(state, 1.0)[1].round.members == ("b", "c")


def test_one_that_does_not_come_is_put_out_at_the_limit():
    state = running("a", "b", "c").ask("a", asked(1.0)).ask("c", asked(2.0))
    assert decide(state, 5.9)[1].round is None
    state, verdict = decide(state, 6.0)
    assert verdict.round.members == ("a", "c")
    assert "did not come within 5 s when a, c" in verdict.put_out["b"]
    assert "b" not in state.present


def test_fewer_than_the_fewest_cannot_go_on():
    state = running("a", "b").leave("a").ask("b", asked(1.0))
    assert "1 of 2 members are gone: 1 are left, and the job needs at least 2" in decide(state, 1.0)[1].failure


def test_all_gone_is_a_failure():
    assert decide(running("a", "b").leave("a").leave("b"), 1.0)[1].failure


def test_newcomers_come_in_at_a_boundary_only():
    state = running("a", "b").enter("n").ask("n", asked(1.0, at_boundary=True))
    assert state.newcomers == ("n",)
    assert decide(state, 50.0)[1].round is None  # nobody else wants a round
    lost = state.ask("a", asked(51.0)).ask("b", asked(51.0, at_boundary=True))
    after, verdict = decide(lost, 51.0)
    assert verdict.round.members == ("a", "b")
    assert after.newcomers == ("n",)
    after, verdict = decide(after.ask("a", asked(52.0, at_boundary=True)).ask("b", asked(52.0, at_boundary=True)), 52.0)
    assert verdict.round.members == ("a", "b", "n")
    assert after.newcomers == ()


def test_no_more_than_the_most_are_taken_in():
    state = running("a", "b", "c").enter("n").ask("n", asked(1.0, True)).enter("m").ask("m", asked(1.0, True))
    for name in "abc":
        state = state.ask(name, asked(2.0, at_boundary=True))
    state, verdict = decide(state, 2.0)
    assert verdict.round.members == ("a", "b", "c", "n")
    assert state.newcomers == ("m",)


def test_newcomers_do_not_make_up_for_lost_members_within_a_step():
    state = running("a", "b").enter("n").ask("n", asked(1.0, True)).leave("b").ask("a", asked(2.0))
    assert "1 are left" in decide(state, 2.0)[1].failure
