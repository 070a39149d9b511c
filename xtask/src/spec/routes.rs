//! The reference page of the REST API, written from the OpenAPI document.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::Value;

const HEAD: &str = "\
# REST API

<!-- Written by `cargo xtask spec`. Change the routes' doc comments instead. -->

The API is JSON under `/api/v1`, with or without a trailing slash. `GET /openapi.json` returns the full description with all types.

A successful reply is `{\"code\":200,\"msg\":…}`. An error has the same HTTP status as its `code`, a sentence in `msg`, a stable name in
`error`, and `hints`. Programs match on the name, because sentences may change:

```json
{\"code\":404,\"msg\":\"there is no job `x`\",\"error\":\"not-found\",\"hints\":[]}
```

Authenticate with `Authorization: Token …` or `Bearer …` (from `POST /api-token-auth`), HTTP Basic, or a client certificate.
";

/// One table for each tag, in the order of their names.
pub fn page(document: &Value) -> Result<String> {
    let mut by_tag: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let paths = document["paths"]
        .as_object()
        .context("the document has no paths")?;
    for (path, operations) in paths {
        let operations = operations.as_object().context("a path has no operations")?;
        for (method, operation) in operations {
            let tag = operation["tags"][0].as_str().unwrap_or("other");
            by_tag.entry(tag).or_default().push(row(method, path, operation));
        }
    }
    let mut page = HEAD.to_owned();
    for (tag, rows) in by_tag {
        write!(
            page,
            "\n## {tag}\n\n| method | path | what it does |\n| --- | --- | --- |\n"
        )?;
        rows.iter().for_each(|row| page.push_str(row));
    }
    Ok(page)
}

fn row(method: &str, path: &str, operation: &Value) -> String {
    let summary = operation["summary"].as_str().unwrap_or_default();
    let names: Vec<&str> = operation["parameters"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|parameter| parameter["in"] == "query")
        .filter_map(|parameter| parameter["name"].as_str())
        .collect();
    let query = match names.is_empty() {
        true => String::new(),
        false => format!(" Query: `{}`.", names.join("`, `")),
    };
    let method = method.to_uppercase();
    let summary = summary
        .trim_end_matches('.')
        .replace('|', "\\|")
        .replace('\n', " ");
    format!("| {method} | `{path}` | {summary}.{query} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_row_with_its_query() {
        let document = serde_json::json!({"paths": {"/api/v1/jobs": {"get": {
            "tags": ["jobs"], "summary": "Lists jobs.", "parameters": [
                {"name": "all", "in": "query"}, {"name": "job", "in": "path"}],
        }}}});
        let page = page(&document).unwrap();
        assert!(page.ends_with(
            "## jobs\n\n| method | path | what it does |\n| --- | --- | --- |\n\
             | GET | `/api/v1/jobs` | Lists jobs. Query: `all`. |\n"
        ));
    }
}
