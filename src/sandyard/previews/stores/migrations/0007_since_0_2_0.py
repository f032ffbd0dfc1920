"""Files belong to previews from the statement on that writes them, and have earlier versions, which
begin with the current one; published versions, and their host names."""

import sqlalchemy as sa

oldest_code = "0004"


def upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "ALTER TABLE previews.project_files "
            "ALTER CONSTRAINT project_files_project_id_fkey NOT DEFERRABLE"
        )
    connection.exec_driver_sql(
        "INSERT INTO previews.file_versions "
        "(project_id, version, author, created_at, message, files, size_bytes) "
        "SELECT p.project_id, p.files_version, 'system', MAX(f.updated_at), '', "
        "SUM(CASE WHEN f.is_deleted THEN 0 ELSE 1 END), SUM(f.size) "
        "FROM previews.previews p JOIN previews.project_files f "
        "ON f.project_id = p.project_id GROUP BY p.project_id, p.files_version"
    )
