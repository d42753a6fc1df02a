"""The pages of dead letters."""

from __future__ import annotations

import html

from tests.conftest import on_sqlite
from tests.intake.making_dead_letters import REASON, deployed, kept, written
from tests.web.surfing import Shown, Surfer
from weft.access.model import Role
from weft.app import App

pytestmark = on_sqlite

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\u202e'


async def sent(surfer: Surfer, dead_letter: int, act: str, **typed: str) -> Shown:
    """Open a dead letter, type, and press a button."""
    page = await surfer.get(f"/dead-letters/{dead_letter}")
    given = {"body": page.typed} | typed
    return await surfer.send(f"/dead-letters/{dead_letter}", page.fields | given | {"act": act})


async def test_letters_are_listed_with_their_reasons_and_dead_ones_first_of_all(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    first, second = await kept(app), await kept(app, message_id="m-2", reason="another reason")
    await app.dead_letters.drop(second)
    page = await surfer.get("/dead-letters")
    assert REASON in page.text
    assert f'href="/dead-letters/{first}"' in page.text
    assert "another reason" not in page.text
    assert "another reason" in (await surfer.get("/dead-letters?state=all")).text
    assert REASON not in (await surfer.get("/dead-letters?state=dropped")).text
    assert "No dead letter is like this" in (await surfer.get("/dead-letters?source=nowhere")).text


async def test_an_empty_list_says_what_it_is_for(surfer: Surfer) -> None:
    await surfer.log_in()
    assert "No message is dead" in (await surfer.get("/dead-letters")).text


async def test_who_operates_no_project_is_told_so(app: App, surfer: Surfer) -> None:
    await kept(app)
    await surfer.log_in(grants={"shop": Role.VIEWER})
    assert "Dead letters are for operators" in (await surfer.get("/dead-letters")).text


async def test_older_dead_letters_are_a_page_away(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    for n in range(52):
        await kept(app, message_id=f"m-{n}", source="a b&c")
    page = await surfer.get("/dead-letters?source=a+b%26c")
    assert page.text.count('scope="row"') == 50
    older = html.unescape(page.text.split('class="paging"')[1].split('href="')[1].split('"')[0])
    rest = await surfer.get(older)
    assert rest.text.count('scope="row"') == 2
    assert "Newest" in rest.text


async def test_a_filter_that_is_refused_says_why_beside_its_field(surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR})
    page = await surfer.get("/dead-letters?project=blog%3C")
    assert page.status == 422
    assert 'id="project-error"' in page.text
    assert 'value="blog&lt;"' in page.text
    assert (await surfer.get("/dead-letters?state=lost")).status == 422


async def test_a_dead_letter_is_edited_and_resubmitted_and_names_its_run(app: App, surfer: Surfer) -> None:
    await deployed(app)
    await surfer.log_in()
    dead_letter = await kept(app)
    page = await surfer.get(f"/dead-letters/{dead_letter}")
    assert (page.typed, REASON in page.text) == (written(priority=1.5).decode(), True)
    done = await sent(surfer, dead_letter, "resubmit", body=written().decode())
    assert (done.status, done.leads_to) == (303, f"/dead-letters/{dead_letter}")
    after = await surfer.get(done.leads_to)
    assert 'href="/runs/1"' in after.text
    assert '<textarea id="body"' not in after.text
    assert (await app.runs.get(1)).project == "shop"
    assert (await app.dead_letters.get(dead_letter)).original == written(priority=1.5)


async def test_a_dead_letter_that_is_refused_again_shows_the_new_reason(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app, written())
    done = await sent(surfer, dead_letter, "resubmit")
    assert done.leads_to == f"/dead-letters/{dead_letter}?said=refused"
    page = await surfer.get(done.leads_to)
    assert "refused again" in page.text
    assert (await app.dead_letters.look(dead_letter)).reason != REASON
    assert (
        html.escape((await app.dead_letters.look(dead_letter)).reason, quote=True).replace("&#x27;", "&#39;")
        in page.text
    )


async def test_a_dead_letter_that_is_only_sent_again_was_not_edited(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app, b'{\r\n  "task_id": 1\r\n}\n')
    await sent(surfer, dead_letter, "resubmit")
    assert (await app.dead_letters.look(dead_letter)).edited is False


async def test_a_dead_letter_is_saved_and_dropped(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    assert (
        await sent(surfer, dead_letter, "save", body="\n{}\r\n")
    ).leads_to == f"/dead-letters/{dead_letter}?said=saved"
    assert (await app.dead_letters.get(dead_letter)).body == b"\n{}\n"
    assert (await surfer.get(f"/dead-letters/{dead_letter}")).typed == "\n{}\n"
    assert (await sent(surfer, dead_letter, "drop")).leads_to == f"/dead-letters/{dead_letter}?said=dropped"
    assert (await app.dead_letters.look(dead_letter)).state == "dropped"


async def test_what_was_typed_is_kept_where_the_dead_letter_was_changed_meanwhile(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    page = await surfer.get(f"/dead-letters/{dead_letter}")
    await app.dead_letters.edit(dead_letter, b"theirs")
    answer = await surfer.send(f"/dead-letters/{dead_letter}", page.fields | {"body": "mine", "act": "save"})
    assert (answer.status, answer.typed) == (412, "mine")
    assert "changed meanwhile" in answer.text
    assert (await app.dead_letters.get(dead_letter)).body == b"theirs"
    again = await surfer.send(f"/dead-letters/{dead_letter}", answer.fields | {"body": answer.typed, "act": "save"})
    assert again.status == 303
    assert (await app.dead_letters.get(dead_letter)).body == b"mine"


async def test_what_was_typed_is_kept_where_the_session_has_ended(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    page = await surfer.get(f"/dead-letters/{dead_letter}")
    await surfer.send("/logout", page.fields)
    answer = await surfer.send(
        f"/dead-letters/{dead_letter}", page.fields | {"body": "all <that> I typed", "act": "save"}
    )
    assert answer.status == 401
    assert "all &lt;that&gt; I typed" in answer.text
    assert (await app.dead_letters.look(dead_letter)).revision == 1


async def test_what_is_wrong_with_a_text_stands_beside_its_field(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    answer = await sent(surfer, await kept(app, b"\xff\xfe"), "save", body="no Base64!")
    assert (answer.status, answer.typed) == (422, "no Base64!")
    assert 'id="body-error">' in answer.text


async def test_a_form_without_the_token_of_its_page_changes_nothing(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    for act in ("save", "resubmit", "drop"):
        fields = {"body": "{}", "revision": "1", "act": act, "csrf": "x" * 43}
        assert (await surfer.send(f"/dead-letters/{dead_letter}", fields)).status == 403
    assert (await app.dead_letters.look(dead_letter)).revision == 1


async def test_a_hostile_dead_letter_is_only_ever_text(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    told = {"source": HOSTILE, "message_id": HOSTILE, "reason": HOSTILE, "headers": {HOSTILE: HOSTILE}}
    dead_letter = await kept(app, f"</textarea>{HOSTILE}".encode(), **told)
    await app.dead_letters.edit(dead_letter, f"</pre></textarea>{HOSTILE}".encode())
    for path in (
        "/dead-letters",
        f"/dead-letters/{dead_letter}",
        f"/dead-letters?source={HOSTILE}&project=%22%3E%3Cb%3E",
    ):
        page = await surfer.get(path)
        assert "<script>" not in page.text
        assert "<img src=x" not in page.text
        assert "<b>" not in page.text
        assert "{{ 7 * 7 }}" in page.text
    assert (await surfer.get(f"/dead-letters/{dead_letter}")).typed == f"</pre></textarea>{HOSTILE}"


async def test_letters_are_shown_as_the_api_allows(app: App, surfer: Surfer) -> None:
    await surfer.log_in(grants={"shop": Role.OPERATOR, "blog": Role.VIEWER})
    shop, blog = await kept(app), await kept(app, project="blog", message_id="m-2")
    nobodys = await kept(app, project=None, message_id="m-3")
    page = await surfer.get("/dead-letters")
    assert [f'href="/dead-letters/{each}"' in page.text for each in (shop, blog, nobodys)] == [True, False, False]
    answers = [await surfer.get(f"/dead-letters/{each}") for each in (shop, blog, nobodys)]
    assert [each.status for each in answers] == [200, 403, 404]
    assert "You may not do this" in answers[1].text


async def test_a_dead_letter_that_is_too_large_for_a_page_is_only_begun(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app, b"<" * 3_000_000)
    page = await surfer.get(f"/dead-letters/{dead_letter}")
    assert len(page.data) < 200_000
    assert "too large for a page" in page.text
    answer = await surfer.send(f"/dead-letters/{dead_letter}", page.fields | {"act": "resubmit"})
    assert answer.leads_to.endswith("?said=refused")
    assert len((await surfer.get(f"/dead-letters/{dead_letter}.json")).data) > 3_000_000


async def test_the_json_of_a_page_is_what_the_api_answers(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    for path in ("/dead-letters", f"/dead-letters/{dead_letter}"):
        assert (await surfer.get(f"{path}.json?state=dead")).data == (await surfer.get(f"/v1{path}")).data


async def test_letters_speak_the_language_of_the_browser(app: App, surfer: Surfer) -> None:
    await surfer.log_in()
    dead_letter = await kept(app)
    for language, words in (("zh", "重新提交"), ("ja", "再送する"), ("en", "Resubmit")):
        assert words in (await surfer.get(f"/dead-letters/{dead_letter}", Accept_Language=language)).text
    done = await sent(surfer, dead_letter, "drop")
    assert "不再等待" in (await surfer.get(done.leads_to, Accept_Language="zh-CN")).text
