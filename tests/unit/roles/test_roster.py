"""Who gets a request, and what waits."""

from __future__ import annotations

import time

from roll_core.roles.errand import Errand, Place
from roll_core.roles.roster import Room, Roster


def roster(hosts=2, room=2):
    made = Roster(hosts, {"work": Room.of(room), "talk": Room.of(1)})
    for member in made.members:
        member.is_live = True
    return made


def errands(count, lane="work", **options):
    return [Errand(number, b"", lane, 10.0, "a test", 1, **options) for number in range(count)]


def test_a_request_goes_to_the_least_loaded_host_and_waits_where_none_has_room():
    desk = roster()
    given = [desk.give(errand) for errand in errands(5)]
    assert [member.index if member else None for member in given] == [0, 1, 0, 1, None]
    assert (desk.waiting, desk.longest_queue) == (1, 1)


def test_lanes_have_room_of_their_own():
    desk = roster(hosts=1)
    talk = errands(2, "talk")
    assert desk.give(talk[0]) and not desk.give(talk[1])
    assert desk.give(Errand(9, b"", "work", 10.0, "a test", 1))


def test_what_waits_goes_in_the_order_it_came_and_in_one_batch():
    desk = roster(hosts=1)
    all_ = errands(6)
    for errand in all_:
        desk.give(errand)
    member = desk.members[0]
    assert desk.finish(member, 0) is all_[0] and desk.finish(member, 1) is all_[1]
    assert desk.fill(member) == all_[2:4]
    assert desk.finish(member, 0) is None


def test_what_nobody_waits_for_any_more_is_passed_over():
    desk = roster(hosts=1, room=1)
    all_ = errands(4)
    for errand in all_:
        desk.give(errand)
    all_[1].future.cancel()
    desk.forget(all_[2])
    desk.finish(desk.members[0], 0)
    assert desk.fill(desk.members[0]) == [all_[3]]


def test_a_host_that_is_not_there_gets_nothing():
    desk = roster(hosts=1)
    (errand,) = errands(1)
    desk.members[0].is_live = False
    assert desk.give(errand) is None
    assert desk.fill(desk.members[0]) == []
    desk.members[0].is_live = True
    assert desk.fill(desk.members[0]) == [errand]


def test_of_requests_that_a_host_ended_with_a_host_has_one_at_first_and_more_with_each_that_comes_back():
    desk = roster(hosts=1, room=4)
    all_ = errands(7)
    for errand in all_[:6]:
        errand.losses = 1
    member = desk.members[0]
    assert desk.give(all_[0]) and not any(desk.give(errand) for errand in all_[1:6])
    assert desk.give(all_[6])  # whatever else there is goes on
    desk.finish(member, 0)
    assert desk.fill(member) == all_[1:3]
    desk.finish(member, 1)
    assert desk.fill(member) == all_[3:5]
    desk.clear(member)
    member.is_live = True
    assert desk.fill(member) == all_[5:6]


def test_a_host_that_runs_dry_gets_more_ahead_and_one_that_takes_long_less_again(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    desk = Roster(1, {"work": Room(at_once=1, least=2, most=8)})
    (member,) = desk.members
    member.is_live = True
    for errand in errands(60):
        desk.give(errand)

    def turn(seconds):
        now[0] += seconds
        for number in list(member.errands):
            desk.finish(member, number)
        return len(desk.fill(member))

    assert len(member.errands) == 2
    assert [turn(0.0) for _ in range(3)] == [4, 8, 8]
    assert [errand.due for errand in member.errands.values()] == [10.0 * place for place in range(1, 9)]
    now[0] += 0.2
    while len(member.errands) > 3:
        desk.finish(member, min(member.errands))
    assert not desk.fill(member) and member.rooms == {"work": 3}
    assert turn(0.2) == 4  # down to 2, and dry again


def test_a_lost_host_gives_back_what_it_had():
    desk = roster(hosts=2, room=1)
    all_ = errands(3)
    for errand in all_:
        desk.give(errand)
    assert desk.clear(desk.members[0]) == [all_[0]]
    assert [member.index for member in desk.live] == [1]
    assert desk.clear_all() == [all_[2], all_[1]]
    assert not desk.live and not desk.waiting


def test_a_place_is_there_as_long_as_its_life_and_needs_no_room():
    desk = roster(hosts=2, room=1)
    member = desk.members[1]
    place = member.place
    assert desk.is_there(place) and place == Place(1, 0)
    assert [desk.give(errand).index for errand in errands(3, place=place)] == [1, 1, 1]
    member.life += 1
    assert not desk.is_there(place)
