"""The site that crawlers are measured on."""

import gzip
import re

from bench.site import Site


def test_every_page_can_be_reached_from_the_seeds() -> None:
    site = Site(pages=600, hosts=4, port=80)
    reached = {(host, 0) for host in range(site.hosts)}
    waiting = list(reached)
    while waiting:
        new = {target for target in site.targets(*waiting.pop()) if target not in reached}
        reached |= new
        waiting += new
    assert len(reached) == site.pages


def test_a_page_has_its_size_its_links_and_one_form_whoever_makes_it() -> None:
    site = Site(pages=600, hosts=4, port=80)
    page = site.html(2, 7)
    assert gzip.decompress(site.packed(2, 7)) == page == Site(pages=600, hosts=4, port=80).html(2, 7)
    assert 35_000 < len(page) < 45_000
    assert len(set(re.findall(rb'href="([^"]+)"', page))) == 50
