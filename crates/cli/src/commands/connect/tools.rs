//! `tools`: print the tool definitions, for agents without MCP.

use clap::Args;
use clap::builder::PossibleValuesParser;
use pinfold_mcp::Shape;
use serde_json::{Value, json};

use super::mcp::shapes;
use crate::console::Console;
use crate::failure::Failure;

/// Print the tool definitions as JSON, in the format of a model API
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold tools --format openai > tools.json")]
pub(crate) struct ToolsArgs {
    /// Format of the definitions
    #[arg(long, default_value = "mcp", value_parser = PossibleValuesParser::new(["mcp", "openai", "anthropic"]))]
    pub(crate) format: String,
    /// Set of tools
    #[arg(long, default_value = "native", value_parser = shapes())]
    pub(crate) shape: Shape,
}

/// Prints them.
pub(crate) fn run(args: &ToolsArgs, console: &mut Console) -> Result<u8, Failure> {
    let definitions = pinfold_mcp::definitions(args.shape);
    let definitions: Vec<Value> = definitions.iter().map(|definition| formed(definition, &args.format)).collect();
    console.document(&definitions)?;
    Ok(0)
}

fn formed(definition: &Value, format: &str) -> Value {
    let (name, description, schema) = (&definition["name"], &definition["description"], &definition["inputSchema"]);
    match format {
        "openai" => json!({
            "type": "function",
            "function": { "name": name, "description": description, "parameters": schema },
        }),
        "anthropic" => json!({ "name": name, "description": description, "input_schema": schema }),
        _ => definition.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_name_description_and_schema() {
        let definition = json!({ "name": "n", "description": "d", "inputSchema": { "type": "object" }, "x": 1 });
        assert_eq!(formed(&definition, "mcp"), definition);
        assert_eq!(formed(&definition, "anthropic")["input_schema"]["type"], "object");
        assert_eq!(formed(&definition, "openai")["function"]["parameters"]["type"], "object");
        assert_eq!(formed(&definition, "openai")["function"]["name"], "n");
    }
}
