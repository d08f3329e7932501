//! Examples at the end of each command's help.

use clap::Command;

/// Examples by command.
const EXAMPLES: [(&str, &[&str]); 22] = [
    ("devices", &["rewire devices", "rewire devices --test --json"]),
    ("rank", &["rewire rank", "rewire rank model.rewire --data users.jsonl --top 5 --json"]),
    (
        "predict",
        &[
            "rewire predict model/ --data users.parquet --out scores.parquet --columns country --rejects bad.jsonl",
            "rewire predict model/ --data users.parquet --out vectors.parquet --embeddings users",
        ],
    ),
    ("retrieve", &["rewire retrieve --users users.parquet --items items.parquet --top 20 --truth clicked"]),
    ("generate", &["rewire generate qwen3/ --prompts prompts.jsonl --trie items.json --beams 10"]),
    ("sid", &["rewire sid --items items.parquet --codes 256,256,256 --out ids/"]),
    (
        "train",
        &[
            "rewire train --out trained/",
            "rewire train model/ --data day1.parquet day2.parquet --config train.json --out out/",
        ],
    ),
    ("eval", &["rewire eval model/ --data labels.parquet --json"]),
    (
        "import",
        &[
            "rewire import pipeline.config --checkpoint model.ckpt-1000 --out model/",
            "rewire import model.onnx --out model.rewire",
        ],
    ),
    ("run", &["rewire run model.onnx --inputs inputs.safetensors --out outputs.safetensors"]),
    ("package", &["rewire package model/ --out model.rewire --tables int8", "rewire package model.rewire --check"]),
    ("apply", &["rewire apply model/ out/deltas/00000001.safetensors out/deltas/00000002.safetensors --out model/"]),
    ("verify", &["rewire verify tests/golden", "rewire verify tests/golden --backward --kernel wgpu --json"]),
    ("compare", &["rewire compare small.rewire --against model/ --data users.jsonl"]),
    ("bench", &["rewire bench hstu_mha --batch 32 --max-len 512", "rewire bench model.rewire --seconds 5 --json"]),
    ("tune", &["rewire tune demo --seconds 30"]),
    ("compile", &["rewire compile model.rewire --adapter radv --deny-spills"]),
    ("profile", &["rewire profile demo --out trace.json"]),
    ("graph", &["rewire graph model/ --stage traced --format svg > model.svg"]),
    ("describe", &["rewire describe model.onnx"]),
    ("serve", &["rewire serve", "rewire serve ctr=model.rewire --listen 0.0.0.0:8000 --batch 128"]),
    ("completions", &["rewire completions bash > ~/.local/share/bash-completion/completions/rewire"]),
];

/// Adds the examples to the help of all commands.
pub fn added(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let examples = EXAMPLES.iter().find(|(name, _)| *name == command.get_name());
        let Some((_, lines)) = examples else { return command };
        let text = format!("Examples:\n  {}", lines.join("\n  "));
        let before = command.get_after_help().map(|before| format!("{before}\n\n"));
        command.after_help(before.unwrap_or_default() + &text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_examples_that_parse() {
        let command = Args::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = sub.get_name();
            assert!(EXAMPLES.iter().any(|(known, _)| *known == name), "{name} has no example");
        }
        for line in
            EXAMPLES.iter().filter(|(name, _)| command.find_subcommand(name).is_some()).flat_map(|(_, lines)| *lines)
        {
            let words = line.split(" > ").next().unwrap().split(' ');
            command.clone().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}
