CASE
    WHEN left((d.fields ->> 'date'), 4) IN ('0000', '0001', '9999') THEN NULL
    -- A year or a month.
    WHEN (d.fields ->> 'date') ~ '^[0-9]{4}(-(0[1-9]|1[0-2]))?$'
        THEN left((d.fields ->> 'date') || '-01-01', 10) || 'T00:00:00.000000+00:00'
    -- A day of any year, or a leap day, perhaps with a time, perhaps with its offset.
    WHEN (d.fields ->> 'date') ~ '^([0-9]{4}-('
            '(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])'
            '|(0[469]|11)-(0[1-9]|[12][0-9]|30)'
            '|02-(0[1-9]|1[0-9]|2[0-8]))'
            '|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)'
            '([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?'
            '(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?$'
        THEN to_char(
            -- Not rounded: more than six decimals are cut off.
            CASE
                WHEN (d.fields ->> 'date') ~ '(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$'
                    AND length((d.fields ->> 'date')) > 10
                    THEN regexp_replace((d.fields ->> 'date'), '([.][0-9]{6})[0-9]+', '\1')
                        ::timestamptz AT TIME ZONE 'UTC'
                ELSE regexp_replace((d.fields ->> 'date'), '([.][0-9]{6})[0-9]+', '\1')::timestamp
            END,
            'YYYY-MM-DD"T"HH24:MI:SS.US+00:00'
        )
END
