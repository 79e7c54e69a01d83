"""Reading every text that the database holds."""

from sqlalchemy import text

from forwarder.store.database import SqlTexts
from forwarder.store.engine import open_engine
from forwarder.store.tables import metadata

COUNT = 1_200


async def test_every_table_is_there_and_each_of_its_texts_comes_once(migrated_url: str) -> None:
    engine = open_engine(migrated_url)
    try:
        async with engine.begin() as connection:
            rows = [{"id": f"w{number:05d}"} for number in range(COUNT)]
            await connection.execute(text("INSERT INTO workspaces (id) VALUES (:id)"), rows)
            grant = "INSERT INTO grants (account_id, credential, version, content) VALUES (:id, 'c', 1, 'of ' || :id)"
            await connection.execute(text(grant), rows)
        texts = SqlTexts(engine)
        assert set(await texts.tables()) >= {*metadata.tables, "workspaces", "alembic_version"}
        found = [each async for batch in texts.of("workspaces") for each in batch if each.column == "id"]
        assert [(each.key, each.text) for each in found] == [(row["id"], row["id"]) for row in rows]
        of_two = [each async for batch in texts.of("grants") for each in batch if each.column == "content"]
        assert [(each.key, each.text) for each in of_two] == [(f"{row['id']},c", f"of {row['id']}") for row in rows]
    finally:
        await engine.dispose()
