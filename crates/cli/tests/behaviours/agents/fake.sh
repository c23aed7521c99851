#!/bin/sh
# An agent that speaks as `codex app-server` does, and misbehaves on request: by FAKE before it is ready, by the prompt in
# a turn. It writes what it was asked to `asked`, in its working directory.
say() { printf '%s\n' "$1"; }
of_turn() { printf '"threadId":"t1","turnId":"u%s"' "$turn"; }
message() { say "{\"method\":\"item/completed\",\"params\":{\"item\":{\"type\":\"agentMessage\",\"id\":\"m\",\"text\":\"$1\"},$(of_turn)}}"; }
ended() { say "{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"t1\",\"turn\":{\"id\":\"u$turn\",\"items\":[],\"status\":\"$1\"}}}"; }
done_with() { message "$1"; ended completed; }
await() { while [ ! -e "$1" ]; do sleep 0.05; done; }
turn=0 deaf=no
echo "it is the fake" >&2
while IFS= read -r line; do
    id=${line#'{"id":'}
    id=${id%%,*}
    case $line in
    *'"method":"initialize"'*)
        case $FAKE in
        silent) continue ;;
        gone) echo "no such configuration" >&2; exit 3 ;;
        other) say '{"id":1,"result":{"protocolVersion":"2025-11-25"}}'; continue ;;
        garbage) i=0; while [ $i -lt 40 ]; do say "npm WARN $i"; i=$((i + 1)); done; continue ;;
        huge) head -c 17000000 /dev/zero | tr '\0' x; continue ;;
        esac
        say "{\"id\":$id,\"result\":{\"userAgent\":\"pinfold/1.2.3 (fake)\"}}" ;;
    *'"method":"thread/'*)
        case $line in *thread/resume*) echo "resumed $line" >>resumed ;; esac
        say "{\"id\":$id,\"result\":{\"thread\":{\"id\":\"t1\"}}}" ;;
    *'"method":"turn/start"'*)
        turn=$((turn + 1))
        text=${line#*'"text":"'}
        text=${text%'"}]'*}
        printf '%s\n' "$text" >>asked
        say "{\"id\":$id,\"result\":{\"turn\":{\"id\":\"u$turn\"}}}"
        say "{\"method\":\"turn/started\",\"params\":{\"threadId\":\"t1\",\"turn\":{\"id\":\"u$turn\"}}}"
        case $text in
        'say '*) done_with "${text#say }" ;;
        'await '*)
            say "{\"method\":\"item/agentMessage/delta\",\"params\":{$(of_turn),\"delta\":\"half\"}}"
            await "${text#await }"; done_with "came" ;;
        crash) exit 9 ;;
        'crash once') [ -e crashed ] && done_with "again" || { : >crashed; exit 9; } ;;
        hang) ;;
        commands)
            (setsid sleep 3101 >/dev/null 2>&1 &)
            CODEX_THREAD_ID=t1 sh -c "trap '' TERM; setsid sleep 3102 & while :; do sleep 3103; done" >/dev/null 2>&1 &
            (CODEX_THREAD_ID=t1 setsid sleep 3104 >/dev/null 2>&1 &) ;;
        'deaf to nothing') deaf=yes ;;
        'deaf to INT') deaf=yes; trap '' INT ;;
        'deaf to TERM') deaf=yes; trap '' INT TERM ;;
        stray) (setsid sleep 300 >/dev/null 2>&1 &); done_with "left one" ;;
        'tidy up') trap 'sleep 1; echo clean >cleaned; exit 0' TERM; done_with "ready to tidy" ;;
        permission)
            say "{\"id\":77,\"method\":\"item/commandExecution/requestApproval\",\"params\":{$(of_turn),\"command\":\"rm -rf x\"}}" ;;
        *'Review the work'*)
            echo review >>reviews
            if [ "$(wc -l <reviews)" -ge 2 ]; then done_with "good\nVERDICT: PASS"; else done_with "- a test is missing\nVERDICT: FAIL"; fi ;;
        *) [ -e gate ] && await opened; done_with "did it" ;;
        esac ;;
    *'"method":"turn/interrupt"'*)
        say "{\"id\":$id,\"result\":{}}"
        [ $deaf = no ] && ended interrupted ;;
    *'"method":"turn/steer"'*)
        printf '%s\n' "$line" >>steered
        say "{\"id\":$id,\"result\":{\"turnId\":\"u$turn\"}}" ;;
    *'"id":77,"result"'*)
        case $line in *accept*) done_with "was allowed" ;; *) done_with "was denied" ;; esac ;;
    esac
done
