# The parts of scripts/bench. Sourced, never run.

THRESHOLDS=Benchmarks/thresholds.txt

# ---- from end to end

PROGRAMS=.build/bench

build_bench() {
  install_packages gcc libc6-dev
  local program
  mkdir -p $PROGRAMS
  for program in bluez floor probe; do
    # shellcheck disable=SC2046
    gcc -O2 -std=gnu11 -Wall -Wextra -Werror -o $PROGRAMS/$program Benchmarks/load/$program.c \
      $(pkg-config --cflags --libs dbus-1 libmosquitto)
  done
  BLUEFERRY_BINARY=$(build_release)
  RUNNER=$(build_product EndToEndBenchmarks)
}

end_to_end() {
  local commit
  commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
  "$RUNNER" --binary "$BLUEFERRY_BINARY" --programs $PROGRAMS --commit "$commit" "$@"
}

table() { end_to_end "$@"; }
scale() { end_to_end --scale "$@"; }

# Runs a mode and puts what it prints between its marks in docs/performance.md. A budget that is not met stops nothing.
document() {
  local mode=$1 text made
  shift
  text=$(mktemp) made=$(mktemp)
  if [ "$mode" = table ]; then set -- --markdown "$@"; fi
  "$mode" "$@" | tee "$text" || say "a budget is not met"
  [ -s "$text" ] || fail "there is nothing to write"
  if [ "$mode" = table ]; then
    cat "$text" >"$made"
  else
    # Of minutes in a crowd the end: the samples before it are for who watches.
    { echo '```'; if [ "$mode" = scale ]; then sed '1,/^$/d' "$text"; else cat "$text"; fi; echo '```'; } >"$made"
  fi
  replace_between "$mode" "$made" docs/performance.md
  rm -f "$text" "$made"
}

# Replaces what stands between <!-- NAME --> and <!-- end of NAME --> by a file.
replace_between() {
  local name=$1 content=$2 file=$3 made
  made=$(mktemp)
  awk -v name="$name" -v content="$content" '
    $0 == "<!-- end of " name " -->" { inside = 0 }
    !inside { print }
    $0 == "<!-- " name " -->" {
      inside = 1
      print ""
      while ((getline line < content) > 0) print line
      print ""
    }' "$file" >"$made"
  cat "$made" >"$file"
  rm -f "$made"
}

# ---- the profile

profile() {
  command -v perf >/dev/null || fail "perf is missing. Debian: apt-get install linux-perf"
  if [ "$(id -u)" -ne 0 ] && [ "$(cat /proc/sys/kernel/perf_event_paranoid)" -gt 1 ]; then
    say "Only root sees the kernel's share here: kernel.perf_event_paranoid is above 1."
  fi
  local record=$PROGRAMS/perf.data
  end_to_end --profile --output $record "$@"
  printf '\nshares by what the time is spent in:\n'
  perf report -i $record --stdio --sort dso 2>/dev/null | awk '$1 ~ /%$/ { print "  " $1, $2 }'
  printf '\nthe first functions:\n'
  perf report -i $record --stdio --sort dso,symbol 2>/dev/null |
    awk '$1 ~ /%$/ && ++count <= 30 { printf "  %7s  %-24s ", $1, $2; $1 = $2 = $3 = $NF = $(NF - 1) = ""; print }' |
    if command -v swift-demangle >/dev/null; then swift-demangle -simplified; else swift demangle --simplified; fi
}

# ---- the gate: allocations and instructions of the hot paths, never times

# Runs the micro-benchmarks under callgrind. Prints name, allocations and instructions of each operation.
count_costs() {
  install_packages valgrind
  local program directory
  program=$(build_product MicroBenchmarks)
  directory=$(mktemp -d)
  # Hashing that differs from run to run would too. One dump for each region, in their order.
  SWIFT_DETERMINISTIC_HASHING=1 timeout 600 valgrind --tool=callgrind --toggle-collect=counters_region \
    --dump-after=counters_region --callgrind-out-file="$directory/out" "$program" --count \
    >"$directory/counts" 2>"$directory/log" || {
    tail -n 20 "$directory/log" >&2
    rm -rf "$directory"
    fail "the micro-benchmarks failed under callgrind"
  }
  awk -F '\t' -v directory="$directory" '
    {
      instructions = ""
      file = directory "/out." NR
      while ((getline line < file) > 0) if (line ~ /^totals: /) instructions = substr(line, 9)
      printf "%-46s %9.2f %9.0f\n", $1, $3 / $2, instructions / $2
    }' "$directory/counts"
  rm -rf "$directory"
}

swift_version() { swift --version 2>/dev/null | sed -n 's/.*Swift version \([0-9]*\.[0-9]*\).*/\1/p' | head -n 1; }

# The thresholds are what was measured. Beyond them lie 10 % for instructions (another processor has other variants of
# memcpy) and nothing for allocations; with another compiler, which inlines differently, 50 % and a quarter.
compare_costs() {
  local measured=$1 thresholds=$2 same=1
  [ "$(sed -n 's/^# Swift //p' "$thresholds")" = "$(swift_version)" ] || same=0
  awk -v same="$same" -v machine="$(uname -m)" '
    { name = $0; sub(/ +[0-9.]+ +[0-9]+$/, "", name) }
    /^#/ { next }
    FNR == NR { allocations[name] = $(NF - 1); instructions[name] = $NF; next }
    {
      seen[name] = 1
      if (!(name in allocations)) { print "no threshold for: " name "; run scripts/bench --renew"; failed = 1; next }
      most = allocations[name] * (same ? 1 : 1.25) + 0.02
      if ($(NF - 1) > most) {
        printf "%s: %.2f allocations, %.2f are allowed\n", name, $(NF - 1), most
        failed = 1
      }
      most = instructions[name] * (same ? 1.1 : 1.5)
      # The thresholds are those of one kind of processor.
      if (machine == "x86_64" && $NF > most) {
        printf "%s: %.0f instructions, %.0f are allowed\n", name, $NF, most
        failed = 1
      }
    }
    END {
      for (name in allocations) if (!(name in seen)) { print "not measured: " name; failed = 1 }
      exit failed
    }' "$thresholds" "$measured"
}

gate() {
  local measured lowered
  measured=$(mktemp) lowered=$(mktemp)
  count_costs >"$measured"
  printf '%-46s %9s %9s\n' operation allocations instructions
  cat "$measured"
  # A gate that cannot fail is none: with less allowed, it has to.
  awk '/^#/ { print; next } { name = $0; sub(/ +[0-9.]+ +[0-9]+$/, "", name); print name, $(NF - 1), int($NF / 2) }' \
    "$THRESHOLDS" >"$lowered"
  if compare_costs "$measured" "$lowered" >/dev/null; then fail "the gate does not notice a lowered threshold"; fi
  awk '/^#/ { print; next } { name = $0; sub(/ +[0-9.]+ +[0-9]+$/, "", name); print name, $(NF - 1) - 1, $NF }' \
    "$THRESHOLDS" >"$lowered"
  if compare_costs "$measured" "$lowered" >/dev/null; then fail "the gate does not notice an allocation more"; fi
  local status=0
  compare_costs "$measured" "$THRESHOLDS" || status=1
  rm -f "$measured" "$lowered"
  if [ $status -ne 0 ]; then
    say "A hot path costs more than it did. If that is meant, run scripts/bench --renew and commit $THRESHOLDS."
    exit 1
  fi
  echo "the hot paths cost no more than $THRESHOLDS allows"
}

renew_thresholds() {
  local measured
  measured=$(mktemp)
  count_costs >"$measured"
  {
    echo "# What each operation of scripts/bench --micro costs: allocations, and instructions by callgrind on x86-64."
    echo "# Written by scripts/bench --renew; the margins are in scripts/lib/bench.sh."
    echo "# Swift $(swift_version)"
    cat "$measured"
  } >$THRESHOLDS
  rm -f "$measured"
  cat $THRESHOLDS
}
