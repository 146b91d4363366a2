# SPDX-License-Identifier: MIT
# bash completion for rlshim(1); what a command takes is asked of the command itself.

_rlshim_settings() {
    rlshim check 2>/dev/null | sed -n 's/^    [* ] \([a-z_]*\) *= .*/\1=/p'
}

_rlshim_pids() {
    local maps
    for maps in /proc/[0-9]*/maps; do
        if grep -q /librlshim.so "$maps" 2>/dev/null; then
            maps=${maps%/maps}
            echo "${maps#/proc/}"
        fi
    done
}

_rlshim() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} i

    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "run observe check stat report bench set reload off on \
            help --version --help" -- "$current")
        return
    fi
    case $previous in
    --set)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W "$(_rlshim_settings)" -- "$current")
        return
        ;;
    --library | --path | --before)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --dir)
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        return
        ;;
    esac
    case $command in
    run | observe)
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
            --set | --library) i=$((i + 1)) ;;
            --) break ;;
            -*) ;;
            *) # the program's own arguments
                if declare -F _command_offset >/dev/null; then
                    _command_offset "$i"
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$current")
                fi
                return
                ;;
            esac
        done
        mapfile -t COMPREPLY < <(compgen -c -W "--set --library --help" -- "$current")
        ;;
    check) mapfile -t COMPREPLY < <(compgen -c -W "--path --help" -- "$current") ;;
    stat)
        mapfile -t COMPREPLY < <(compgen -W "--all --dir --prometheus --help $(_rlshim_pids)" -- "$current")
        ;;
    report) mapfile -t COMPREPLY < <(compgen -f -W "--json --html --before --help" -- "$current") ;;
    bench)
        mapfile -t COMPREPLY < <(compgen -d -W "--set --library --seconds --quiet --help" -- "$current")
        ;;
    set)
        if [ "$COMP_CWORD" = 2 ]; then
            mapfile -t COMPREPLY < <(compgen -W "--help $(_rlshim_pids)" -- "$current")
        else
            compopt -o nospace
            mapfile -t COMPREPLY < <(compgen -W "$(_rlshim_settings)" -- "$current")
        fi
        ;;
    reload | off | on) mapfile -t COMPREPLY < <(compgen -W "--help $(_rlshim_pids)" -- "$current") ;;
    help)
        mapfile -t COMPREPLY < <(compgen -W "run observe check stat report bench set reload off on" -- "$current")
        ;;
    esac
}

complete -F _rlshim rlshim
