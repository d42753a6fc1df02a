"""Queries that find tasks, projects, spiders and more by a part of their name, prefix matches first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import Case, Column, Select, and_, case, func, select, union

from weft.db import schema
from weft.db.database import Transaction

tasks, projects, versions = schema.tasks, schema.projects, schema.versions
datasets, workers, crawls = schema.datasets, schema.workers, schema.crawls

Named = tuple[str, str]
"""A project and a name in it."""
NamedCrawl = tuple[int, str, str]
"""The number of a crawl before them."""
MOST_VERSIONS = 50
NEWEST_CRAWLS = 1_000
"""Of so many the names are looked at: a schedule makes a crawl each time."""
PRESENT_STATES = ("online", "busy", "unhealthy", "draining")
"""States of workers that are there; those that have gone stay in the table for ever."""


class _SpiderName(msgspec.Struct):
    name: str


def tasks_named(tx: Transaction, part: str, within: Collection[str] | None, limit: int) -> list[Named]:
    query = _name_contains(select(tasks.c.project, tasks.c.name), tasks.c.name, part, limit)
    return _pairs(tx, _in_projects(query, tasks.c.project, within))


def datasets_named(tx: Transaction, part: str, within: Collection[str] | None, limit: int) -> list[Named]:
    query = _name_contains(select(datasets.c.project, datasets.c.name), datasets.c.name, part, limit)
    return _pairs(tx, _in_projects(query, datasets.c.project, within))


def projects_named(tx: Transaction, part: str, within: Collection[str] | None, limit: int) -> list[str]:
    """Those that have settings or code, and those that have tasks."""
    named = [
        _in_projects(select(column.label("name")), column, within).where(
            func.lower(column).contains(part, autoescape=True)
        )
        for column in (projects.c.name, tasks.c.project)
    ]
    found = union(*named).subquery()
    query = select(found.c.name).order_by(_prefix_first(found.c.name, part), found.c.name).limit(limit)
    return [row.name for row in tx.rows(query)]


def spiders_named(tx: Transaction, part: str, within: Collection[str] | None, limit: int) -> list[Named]:
    """Of the code that projects use now: only where the part stands somewhere in it, the spiders are read."""
    current = and_(versions.c.project == projects.c.name, versions.c.version == projects.c.current_version)
    query = select(versions.c.project, versions.c.spiders).join_from(projects, versions, current)
    query = query.where(func.lower(versions.c.spiders).contains(part, autoescape=True)).order_by(versions.c.project)
    rows = tx.rows(_in_projects(query, versions.c.project, within).limit(MOST_VERSIONS))
    found = [
        (row.project, spider.name)
        for row in rows
        for spider in msgspec.json.decode(row.spiders, type=list[_SpiderName])
        if part in spider.name.lower()
    ]
    return sorted(found, key=lambda each: (not each[1].lower().startswith(part), each[1], each[0]))[:limit]


def workers_named(tx: Transaction, part: str, limit: int) -> list[str]:
    """Those that are there."""
    there = and_(workers.c.state.in_(PRESENT_STATES), func.lower(workers.c.name).contains(part, autoescape=True))
    query = select(workers.c.name).where(there).distinct().order_by(workers.c.name).limit(limit)
    return [row.name for row in tx.rows(query)]


def crawls_named(tx: Transaction, part: str, within: Collection[str] | None, limit: int) -> list[NamedCrawl]:
    """Of those that are called alike, the newest."""
    newest = select(crawls.c.id, crawls.c.project, crawls.c.name).order_by(crawls.c.id.desc()).limit(NEWEST_CRAWLS)
    found = _in_projects(newest, crawls.c.project, within).subquery()
    number, name = func.max(found.c.id).label("number"), found.c.name
    query = select(number, found.c.project, name).where(func.lower(name).contains(part, autoescape=True))
    query = (
        query.group_by(found.c.project, name).order_by(_prefix_first(name, part), name, found.c.project).limit(limit)
    )
    return [(row.number, row.project, row.name) for row in tx.rows(query)]


def crawl_numbered(tx: Transaction, number: int, within: Collection[str] | None) -> list[NamedCrawl]:
    query = select(crawls.c.id, crawls.c.project, crawls.c.name).where(crawls.c.id == number)
    return [(row.id, row.project, row.name) for row in tx.rows(_in_projects(query, crawls.c.project, within))]


def _name_contains(query: Select[Any], name: Column[Any], part: str, limit: int) -> Select[Any]:
    found = query.where(func.lower(name).contains(part, autoescape=True))
    return found.order_by(_prefix_first(name, part), name).limit(limit)


def _prefix_first(name: Any, part: str) -> Case[int]:
    return case((func.lower(name).startswith(part, autoescape=True), 0), else_=1)


def _in_projects(query: Select[Any], project: Column[Any], within: Collection[str] | None) -> Select[Any]:
    return query if within is None else query.where(project.in_(sorted(within)))


def _pairs(tx: Transaction, query: Select[Any]) -> list[Named]:
    return [(row[0], row[1]) for row in tx.rows(query)]
