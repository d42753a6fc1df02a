"""Six ordinary sites, each with the truth about it: the paths of all that a person would call a page of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from urllib.parse import quote

from experiments.answering import Asked, Said

TALE = (
    "river stone window garden letter market winter silver harbour engine mountain paper bridge candle forest meadow "
    "kettle orchard lantern ribbon chapel ladder pebble saddle violin walnut copper basket thunder island"
)
WORDS = TALE.split()


@dataclass(frozen=True, slots=True)
class Site:
    """Pages by their path, and what is answered where there is none."""

    name: str
    pages: dict[str, str]
    others: Callable[[str], Said] = lambda path: Said(404, b"<title>Not found</title><p>There is no such page.")

    def answer(self, asked: Asked) -> Said:
        found = self.pages.get(asked.path)
        if found is None:
            return self.others(asked.path)
        return Said(body=found.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


def text(seed: object, words: int = 60) -> str:
    return " ".join(random.Random(str(seed)).choices(WORDS, k=words))


def page(title: str, body: str, links: Iterable[str], nav: Iterable[str] = ("/",)) -> str:
    menu = "".join(f'<li><a href="{each}">Menu {each}</a></li>' for each in nav)
    anchors = "".join(f'<a href="{each}">more</a>\n' for each in links)
    return (
        f"<!doctype html><title>{title}</title><body><ul>{menu}</ul><h1>{title}</h1>{body}{anchors}<p>© Us</p></body>"
    )


def pager(folder: str, number: int, last: int) -> Iterator[str]:
    """As most blogs have it: one page back and one page on, and the first without a number."""
    if number > 1:
        yield folder if number == 2 else f"{folder}page/{number - 1}/"
    if number < last:
        yield f"{folder}page/{number + 1}/"


def gallery(photos: int = 312, on_a_page: int = 12) -> Site:
    """Each photo has a page, and these differ in a number and a picture."""
    pages, last = {}, -(-photos // on_a_page)
    for number in range(1, last + 1):
        shown = range((number - 1) * on_a_page + 1, min(number * on_a_page, photos) + 1)
        links = [*(f"/photo/{each}" for each in shown), *pager("/", number, last)]
        pages["/" if number == 1 else f"/page/{number}/"] = page(f"Gallery, page {number}", "", links)
    for number in range(1, photos + 1):
        near = [f"/photo/{each}" for each in (number - 1, number + 1) if 1 <= each <= photos]
        pages[f"/photo/{number}"] = page(f"Photo {number} of {photos}", f'<img src="/jpg/{number}.jpg">', near)
    return Site("gallery", pages)


def blog(posts: int = 180, on_a_page: int = 5) -> Site:
    """Older posts are reached page by page; archives by month and year, tags, and the same posts under all of them."""
    made = [(f"/{2010 + n // 24}/{n % 24 // 2 + 1:02}/post-{WORDS[n % 30]}-{n}/", n) for n in range(posts)][::-1]
    months = sorted({path[:9] for path, _ in made})
    years, tags = sorted({path[:6] for path, _ in made}), [f"/tag/{word}/" for word in WORDS[:10]]
    pages, last = {"/about/": page("About", text("about"), ["/", "/?utm_source=about"])}, -(-posts // on_a_page)
    for number in range(1, last + 1):
        shown = [path for path, _ in made[(number - 1) * on_a_page : number * on_a_page]]
        body = "".join(f"<p>{text(path, 12)}</p>" for path in shown)
        nav = ["/", "/about/", years[-1], *tags]
        links = [*shown, *(f"{each}#comments" for each in shown), *pager("/", number, last)]
        pages["/" if number == 1 else f"/page/{number}/"] = page("Our blog", body, links, nav)
    for path, n in made:
        pages[path] = page(f"Post {n}", f"<p>{text(path)}</p>", [path[:9], tags[n % 10], f"{path}#respond"])
    for place, month in enumerate(months):
        within = [path for path, _ in made if path.startswith(month)]
        pages[month] = page(f"Archive {month}", "", [*within, *months[max(0, place - 1) : place + 2], month[:6]])
    for place, year in enumerate(years):
        near = years[max(0, place - 1) : place + 2]
        pages[year] = page(f"Archive {year}", "", [*near, *(each for each in months if each.startswith(year))])
    for place, tag in enumerate(tags):
        pages[tag] = page(f"Tagged {tag}", "", [path for path, n in made if n % 10 == place])
    return Site("blog", pages)


def shop(products: int = 160) -> Site:
    """Facets that combine, things that are sold out, and a server that overlooks what it does not know."""
    colours, sizes, kinds = ("red", "blue", "green"), ("s", "m", "l"), ("lamps", "chairs", "tables")
    goods = [(n, kinds[n % 3], colours[n // 3 % 3], sizes[n // 9 % 3]) for n in range(1, products + 1)]
    pages = {"/": page("Shop", text("shop"), [f"/c/{kind}" for kind in kinds])}
    for kind, colour, size, sort in product(kinds, ("", *colours), ("", *sizes), ("", "price")):
        chosen = {"color": colour, "size": size, "sort": sort}
        shown = [n for n, *what in goods if all(not want or want in what for want in (kind, colour, size))]
        links = [f"/p/{n}" for n in shown]
        for name, values in (("color", colours), ("size", sizes), ("sort", ("price",))):
            links += [_facet(kind, chosen | {name: value}) for value in ("", *values)]
        body = "".join(f"<p>{text(n, 4)}</p>" for n in shown)
        pages[_facet(kind, chosen)] = page(
            f"Our {kind}", body, [*links, _facet(kind, chosen | {"PHPSESSID": "a1b2c3"})]
        )
    for n, kind, colour, _ in goods:
        gone = "<p>This article is sold out. We are sorry.</p>"
        pages[f"/p/{n}"] = page(
            f"Article {n}", gone if n > 60 else text(n), [f"/c/{kind}", f"/c/{kind}?color={colour}"]
        )
    whole = Said(body=pages["/c/lamps"].encode(), headers={"Content-Type": "text/html"})
    return Site("shop", pages, lambda path: whole if path.startswith("/c/lamps?") else Said(404))


def _facet(kind: str, chosen: dict[str, str]) -> str:
    query = "&".join(f"{name}={value}" for name, value in chosen.items() if value)
    return f"/c/{kind}?{query}" if query else f"/c/{kind}"


def forum(topics: int = 120, members: int = 90) -> Site:
    """Numbers in queries, profiles that are all alike, and topics whose numbers look like years."""
    first, pages = 1_950, {}
    boards = {f: [first + n for n in range(topics) if n % 4 == f] for f in range(4)}
    pages["/"] = page("Forum", "", [f"/viewforum.php?f={f}" for f in boards])
    for f, listed in boards.items():
        for start in range(0, len(listed), 10):
            shown = [f"/topic/{t}/1" for t in listed[start : start + 10]]
            on = [f"/viewforum.php?f={f}&start={start + 10}"] if start + 10 < len(listed) else []
            path = f"/viewforum.php?f={f}" + (f"&start={start}" if start else "")
            pages[path] = page(f"Board {f}", "".join(f"<p>{text(each, 6)}</p>" for each in shown), [*shown, *on])
    for n in range(topics):
        t, last = first + n, 1 + n % 3
        for number in range(1, last + 1):
            authors = [f"/memberlist.php?mode=viewprofile&u={(n * 3 + number * k) % members + 1}" for k in range(8)]
            near = [f"/topic/{t}/{each}" for each in range(1, last + 1)]
            body = "".join(f"<p>{text((t, number, k), 20)}</p>" for k in range(3))
            pages[f"/topic/{t}/{number}"] = page(f"Topic {t}", body, [*authors, *near, f"/topic/{t}/1#p{number}"])
    for u in range(1, members + 1):
        body = f"<p>Joined: 2011</p><p>Posts: {u * 7 % 50}</p><p>This member has written nothing about himself.</p>"
        pages[f"/memberlist.php?mode=viewprofile&u={u}"] = page(f"Profile of user{u}", body, [])
    sorry = Said(
        body=b"<title>Information</title><p>The requested user does not exist.", headers={"Content-Type": "text/html"}
    )
    return Site("forum", pages, lambda path: sorry if path.startswith("/memberlist") else Said(404))


def manual(versions: int = 26, chapters: int = 14) -> Site:
    """Documentation of many versions, which hardly differ."""
    pages, named = {}, [f"{1 + v // 10}.{v % 10}" for v in range(versions)]
    for version, chapter in product(named, range(chapters)):
        others = [f"/docs/{other}/chapter-{WORDS[chapter]}.html" for other in named]
        near = [f"/docs/{version}/chapter-{WORDS[c]}.html" for c in range(chapters)]
        body = f"<p>{text(chapter, 80)}</p><p>This is about version {version}.</p>"
        pages[near[chapter]] = page(f"{WORDS[chapter]} {version}", body, others, ["/docs/", *near])
    pages["/docs/"] = page("Manual", "", [f"/docs/{version}/chapter-{WORDS[0]}.html" for version in named])
    pages["/"] = page("Project", text("project"), ["/docs/", "/docs/latest/"])
    newest = Said(302, headers={"Location": f"/docs/{named[-1]}/chapter-{WORDS[0]}.html"})
    return Site("manual", pages, lambda path: newest if path == "/docs/latest/" else Said(404))


def languages(subjects: int = 40) -> Site:
    """The same in many languages; much of it is not translated yet. Addresses are spelled in more than one way."""
    tongues = {"en": "page", "de": "straße", "ja": "東京", "ru": "страница", "ko": "페이지"}
    pages = {"/": page("Welcome", "", [f"/{tongue}/" for tongue in tongues])}
    for tongue, word in tongues.items():
        paths = [f"/{tongue}/{word}-{WORDS[n % 30]}{'-' * (n // 30)}" for n in range(subjects)]
        pages[f"/{tongue}/"] = page(f"{tongue}: all", "", [*paths, *map(quote, paths)])
        for n, path in enumerate(paths):
            body = text((tongue, n)) if tongue in ("en", "de") else "<p>This page is not translated yet.</p>"
            elsewhere = [f"/{other}/{name}-{WORDS[n % 30]}{'-' * (n // 30)}" for other, name in tongues.items()]
            lower = [quote(each).lower() for each in elsewhere]
            pages[quote(path)] = page(f"{path} ({tongue})", body, [*elsewhere, *lower], [f"/{tongue}/", "/"])
    return Site("languages", pages)


SITES = (gallery, blog, shop, forum, manual, languages)
